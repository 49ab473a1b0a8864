// The state of a view is in its address: `#/next?run=demo/lstm&text=Return`. A lecture is a list of such links.

/** Names of views before version 0.6, which links may still have (studio/lecture.py knows them too). */
const OLD_NAMES = {
  surprise: "surprisal",
  pairs: "minimal-pairs",
  why: "attribution",
  mix: "layer-mix",
  blanks: "fill",
};

/** The view and its raw parameters, from a hash. */
export const parse = hash => {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const name = decodeURIComponent(path || "");
  return { name: OLD_NAMES[name] ?? name, query: new URLSearchParams(query) };
};

/** The state from raw parameters, with the types of the defaults; invalid numbers get the default. */
export const read = (query, defaults) => {
  const state = {};
  for (const [name, fallback] of Object.entries(defaults)) {
    const given = query.getAll(name);
    if (Array.isArray(fallback)) state[name] = given.length ? given.filter(each => each !== "") : fallback;
    else if (!given.length) state[name] = fallback;
    else if (typeof fallback === "number")
      state[name] = Number.isFinite(Number(given[0])) && given[0] !== "" ? Number(given[0]) : fallback;
    else if (typeof fallback === "boolean") state[name] = given[0] === "1" || given[0] === "true";
    else state[name] = given[0];
  }
  return state;
};

/** The address of a view in a state, without the values that are defaults. */
export const write = (name, state, defaults, extra = {}) => {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(state)) {
    if (!(key in defaults) || JSON.stringify(value) === JSON.stringify(defaults[key])) continue;
    if (Array.isArray(value)) (value.length ? value : [""]).forEach(each => query.append(key, each));
    else query.set(key, typeof value === "boolean" ? (value ? "1" : "0") : String(value));
  }
  for (const [key, value] of Object.entries(extra)) if (value !== undefined) query.set(key, String(value));
  const tail = query.toString();
  return `#/${name}${tail ? "?" + tail : ""}`;
};
