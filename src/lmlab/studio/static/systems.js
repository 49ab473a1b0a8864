// What the views can show of each system; a test compares the lists with what the library can show.

/** Systems that read a text with attention. */
const ATTENTIVE = new Set(
  (
    "attention-lm gpt gpt2 llama music-transformer transformer-xl bert mbert roberta xlm-r albert electra " +
    "xlnet reformer transformer bart seq2seq"
  ).split(" "),
);
/** Systems whose forward pass is shown step by step. */
const STEPPED = new Set(
  (
    "ngram bow nplm rnn gru lstm awd-lstm attention-lm gpt gpt2 llama music-transformer transformer-xl " +
    "bert mbert roberta xlm-r albert electra"
  ).split(" "),
);

export const hasAttention = run => run.does.includes("vectors") && run.pictures !== true && ATTENTIVE.has(run.kind);

export const hasSteps = run =>
  (run.does.includes("next token") || run.does.includes("masks")) && run.pictures !== true && STEPPED.has(run.kind);
