// Speech: the transcript of a recording; the words are highlighted while it is played.

import { h, number } from "../dom.js";
import { post } from "../api.js";
import { runPicker } from "../fields.js";
import { table } from "../parts.js";

/** Bytes of a file, at most: the same limit as on the server. */
const MOST = 16 * 2 ** 20;
const COLOURS = [
  [13, 8, 40],
  [74, 30, 110],
  [190, 60, 90],
  [250, 160, 60],
  [252, 250, 190],
];

/** The number of the word that is spoken at a time; -1 before the first and in pauses. */
export const wordAt = (words, seconds) => words.findIndex(each => seconds >= each.begin && seconds < each.end);

/** The red, green and blue of a value from 0 to 255. */
export const soundColour = value => {
  const index = (value / 255) * (COLOURS.length - 1),
    below = Math.min(COLOURS.length - 2, Math.floor(index));
  return COLOURS[below].map((each, band) => Math.round(each + (index - below) * (COLOURS[below + 1][band] - each)));
};

/** The content of a file in base64. */
const encode = file =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });

const spectrogram = ({ bands, columns, values }) => {
  const canvas = h("canvas", {
      width: columns,
      height: bands,
      class: "sound",
      role: "img",
      "aria-label": "Spectrogram",
    }),
    bytes = Uint8Array.from(atob(values), letter => letter.charCodeAt(0)),
    image = new ImageData(columns, bands);
  for (let row = 0; row < bands; row++)
    for (let column = 0; column < columns; column++)
      image.data.set([...soundColour(bytes[(bands - 1 - row) * columns + column]), 255], 4 * (row * columns + column));
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
};

/** The player, and what follows it: the word that is spoken, and the line in the spectrogram. */
const player = (page, data, buttons, line) => {
  const audio = h("audio", { controls: true, src: page.sound, "aria-label": "The recording" });
  const follow = () => {
    const now = wordAt(data.words, audio.currentTime);
    buttons.forEach((each, index) => each.classList.toggle("said", index === now));
    line.style.setProperty("left", `${(100 * audio.currentTime) / Math.max(data.seconds, 0.001)}%`);
    if (!audio.paused) requestAnimationFrame(follow);
  };
  for (const event of ["play", "seeked", "timeupdate"]) audio.addEventListener(event, follow);
  return audio;
};

export default {
  name: "speech",
  title: "Speech",
  lead:
    "Choose a WAV file of at most 16 MiB and 10 minutes. The transcript comes with the time of each word, found by " +
    "cross-attention. Play the recording to follow the words; click a word to hear it.",
  defaults: { run: "", file: "" },
  fits: run => run.does.includes("transcripts"),
  controls: page => {
    const input = h("input", {
      type: "file",
      name: "file",
      accept: ".wav,audio/wav,audio/x-wav,audio/flac,audio/ogg,audio/mpeg",
      onchange: () => {
        const file = input.files[0];
        if (!file) return;
        if (file.size > MOST) return page.fail({ message: `${file.name} is larger than ${MOST / 2 ** 20} MiB` });
        if (page.sound) URL.revokeObjectURL(page.sound);
        page.file = file;
        page.sound = URL.createObjectURL(file);
        page.set({ file: `${file.name} ${file.size} ${file.lastModified}` });
      },
    });
    page.closers.push(() => page.sound && URL.revokeObjectURL(page.sound));
    return [
      h("label", { class: "field wide" }, "Recording", input),
      runPicker(page, {
        several: false,
        fits: page.view.fits,
        none: "No run here reads recordings: train whisper, or convert published weights (lmlab convert FOLDER RUN).",
      }),
    ];
  },
  empty: "Choose a run and a recording.",
  ask: async (state, signal, page) => {
    if (!state.run || !page.file) return null;
    return post("speech", { run: state.run, name: page.file.name, recording: await encode(page.file) }, signal);
  },
  draw(page, data) {
    const line = h("div", { class: "now" });
    const buttons = data.words.map(each =>
      h("button", { type: "button", title: `${number(each.begin, 2)} to ${number(each.end, 2)} s` }, each.text),
    );
    const audio = player(page, data, buttons, line);
    buttons.forEach((each, index) =>
      each.addEventListener("click", () => {
        audio.currentTime = data.words[index].begin;
      }),
    );
    const words = buttons.flatMap(each => [each, " "]);
    return {
      pictures: [
        h("div", { class: "listening" }, spectrogram(data.spectrogram), line),
        audio,
        h("div", { class: "words wide", role: "group", "aria-label": "Words: press one to hear it" }, words),
        !data.words.length && h("p", { class: "empty" }, "The model hears no speech."),
      ].filter(Boolean),
      tables: [
        table(
          `Words${data.language ? `, language ${data.language}` : ""}`,
          ["word", "begin", "end"],
          data.words.map(each => [each.text, each.begin, each.end]),
        ),
      ],
    };
  },
};
