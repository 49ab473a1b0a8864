// Temperature and top-p, computed from the whole distribution of a model that was saved with a lecture.

/** How many tokens are in the nucleus: the best ones whose probabilities sum to `topP` at least, with ties. */
const nucleus = (probabilities, topP) => {
  if (topP >= 1) return probabilities.length;
  let sum = 0;
  for (let kept = 0; kept < probabilities.length; kept++) {
    if (sum >= topP && probabilities[kept] < probabilities[kept - 1]) return kept;
    sum += probabilities[kept];
  }
  return probabilities.length;
};

/** Probabilities after temperature and top-p from log probabilities in falling order; those left out are 0. */
export const sampled = (logs, { temperature, top_p: topP }) => {
  const scaled = logs.map(log => Math.exp((log - logs[0]) / temperature)),
    total = scaled.reduce((sum, each) => sum + each, 0),
    probabilities = scaled.map(each => each / total);
  const kept = nucleus(probabilities, topP),
    mass = probabilities.slice(0, kept).reduce((sum, each) => sum + each, 0);
  return { probabilities: probabilities.map((each, rank) => (rank < kept ? each / mass : 0)), kept };
};

/** Log probabilities from 32-bit floats in base64, as the server sends them. */
export const readLogs = text => [
  ...new Float32Array(Uint8Array.from(atob(text), letter => letter.charCodeAt(0)).buffer),
];

/** The answer to a request for next tokens with other options than the recorded one. */
export const sampleFrom = (found, options) => ({
  ...found,
  runs: found.runs.map(run => {
    if (!run.distribution) return run;
    const { probabilities, kept } = sampled(readLogs(run.distribution), options);
    const tokens = run.tokens.map((each, rank) => ({ ...each, sampled: probabilities[rank] }));
    return { ...run, kept, tokens: tokens.slice(0, options.top) };
  }),
});
