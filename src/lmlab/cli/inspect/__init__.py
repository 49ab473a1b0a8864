"""Look inside runs: attention, cells, pairs, probes, senses …

Each analysis prints a table. With  --json  it prints JSON, and with  -o FILE  it writes a page (.html), a picture
(.png), or data (.json, .csv).

Try  lmlab inspect minimal-pairs RUN pairs.tsv  or  lmlab inspect attention RUN "A text." -o attention.html
"""

from __future__ import annotations

from lmlab.cli.verbs import Verb

HERE = "lmlab.cli.inspect"
INSIDE, BEHAVIOUR = "What is inside", "What it does"

VERBS: dict[str, Verb] = {
    verb.name: verb._replace(folder=HERE)
    for verb in (
        Verb("attention", INSIDE, "Where does each head look? Weights, entropy, distance, rollout."),
        Verb("cells", INSIDE, "Which cells or neurons follow quotes, brackets, anything?"),
        Verb("probes", INSIDE, "What can be read off each layer? Parts of speech, number, trees …"),
        Verb("senses", INSIDE, 'Do the senses of a word lie apart? The picture of "bank".'),
        Verb("gradients", INSIDE, "Which tokens speak for a prediction? Gradient × input."),
        Verb("neighbours", INSIDE, "Which tokens lie nearest to a word? And analogies."),
        Verb("layers", INSIDE, "Which layers does a fine-tuned run read? ELMo's learnt mix."),
        Verb("bias", BEHAVIOUR, "Which of two groups is more probable, word by word?"),
        Verb("errors", BEHAVIOUR, "What happens off the beaten track? Loops, copies, inventions."),
        Verb("minimal-pairs", BEHAVIOUR, "Does it prefer the right sentence of two? BLiMP …"),
        Verb("surprisal", BEHAVIOUR, "How much does each word surprise it, in bits? Or two runs?"),
    )
}
