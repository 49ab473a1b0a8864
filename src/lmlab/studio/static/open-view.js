// Views by name, and the runs that they begin with.

/** The view of a name; its file is loaded when it is first opened. */
export const loadView = async name => (await import(`./views/${name}.js`)).default;

/** The runs of the text that most of them were trained on; a run without a known text is alone. */
export const largestGroup = runs => {
  const groups = new Map();
  for (const run of runs) {
    const key = run.text?.id || run.name;
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  return [...groups.values()].reduce((most, group) => (group.length > most.length ? group : most), []);
};

/** The state of a view with its default runs, if the address names none: runs of one text, which can be compared. */
export const withDefaultRuns = (view, state, runs) => {
  const capable = runs.filter(view.fits ?? (() => false)).filter(run => run.weights || view.name === "runs");
  const preferred = capable.filter(view.prefers ?? (() => true)),
    fits = preferred.length ? preferred : capable;
  if (!fits.length) return state;
  if (Array.isArray(state.run) && !state.run.length)
    state.run = largestGroup(fits)
      .slice(0, view.first ?? 1)
      .map(run => run.name);
  if (state.run === "") state.run = largestGroup(fits)[0].name;
  return state;
};
