// Perceptually uniform colours: lightness changes in equal steps of OKLab (Ottosson 2020), so they work in greyscale.

const dark = matchMedia("(prefers-color-scheme: dark)");
export const isDark = () => dark.matches;
export const onScheme = listener => dark.addEventListener("change", listener);

const channel = value => {
  const v = Math.min(1, Math.max(0, value));
  return Math.round(255 * (v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055));
};

/** From OKLab's polar form to #rrggbb. */
export const oklch = (L, C, hue) => {
  const a = C * Math.cos((hue * Math.PI) / 180),
    b = C * Math.sin((hue * Math.PI) / 180);
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3,
    m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3,
    n = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const rgb = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * n,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * n,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * n,
  ];
  return "#" + rgb.map(each => channel(each).toString(16).padStart(2, "0")).join("");
};

const lightness = share => (isDark() ? 0.26 + 0.62 * share : 0.985 - 0.585 * share);

/** A share from 0 to 1 as a colour, from the paper to the strongest. */
export const scale = (share, hue = 262) => {
  const t = Math.min(1, Math.max(0, share));
  return oklch(lightness(t), 0.004 + 0.155 * Math.sin(Math.PI * Math.min(1, 0.66 * t ** 0.8)), hue);
};

/** A value from -1 to 1: blue above zero, orange below (as in pages/figures.py), as strong as it is far from 0. */
export const diverging = value => scale(Math.abs(value), value < 0 ? 45 : 262);

/** The relative luminance of #rrggbb (WCAG 2). */
export const luminance = colour => {
  const [red, green, blue] = [1, 3, 5]
    .map(at => parseInt(colour.slice(at, at + 2), 16) / 255)
    .map(value => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};

/** The ink that can be read on a colour of the scale: black or white, whichever has the higher contrast. */
export const inkOn = (share, sign = 1) =>
  luminance(diverging(sign * Math.min(1, Math.abs(share)) || 0)) > 0.179 ? "#000000" : "#ffffff";

/** The n-th colour for groups, a rule of the style sheet; the palette of pages/figures/palette.py. */
export const runColour = number => `var(--c${number % COLOURS})`;
const COLOURS = 10;

/** The dashes of the n-th line, so that lines can be told apart without colour. */
export const dashesOf = number => DASHES[number % DASHES.length];
const DASHES = ["", "7 4", "2 3", "10 3 2 3", "4 2", "1 3", "12 4"];

/** The number of each run's colour: the server's, unless a run that was shown before has it and another is free. */
const numbers = new Map();
let wanted = new Map();
export const knowRuns = runs => {
  wanted = new Map(runs.map(run => [run.name, run.colour]));
};
export const numberOf = name => {
  if (!numbers.has(name)) {
    const own = wanted.get(name) ?? 0,
      taken = new Set(numbers.values()),
      order = Array.from({ length: COLOURS }, (_, step) => (own + step) % COLOURS);
    numbers.set(name, order.find(each => !taken.has(each)) ?? own);
  }
  return numbers.get(name);
};
/** The colour of a run, the same in every view. */
export const colourOf = name => runColour(numberOf(name));
