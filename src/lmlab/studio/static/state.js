// The state of a view is in the address: `#/next?run=demo/lstm&text=Return`. A link is a view, and a lecture a list of links.

/** The view and its raw parameters, from a hash. */
export const parse = hash => {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { name: decodeURIComponent(path || ""), query: new URLSearchParams(query) };
};

/** Parameters as the values that a view has defaults of: numbers, switches, lists, texts; what makes no sense is left out. */
export const read = (query, defaults) => {
  const state = {};
  for (const [name, usual] of Object.entries(defaults)) {
    const given = query.getAll(name);
    if (Array.isArray(usual)) state[name] = given.length ? given.filter(each => each !== "") : usual;
    else if (!given.length) state[name] = usual;
    else if (typeof usual === "number")
      state[name] = Number.isFinite(Number(given[0])) && given[0] !== "" ? Number(given[0]) : usual;
    else if (typeof usual === "boolean") state[name] = given[0] === "1" || given[0] === "true";
    else state[name] = given[0];
  }
  return state;
};

/** The address of a view in a state; what is as usual is left out. */
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
