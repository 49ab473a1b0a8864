"""Analyse runs: attention, cells, minimal pairs, probing …

Each analysis prints a table. With  --json  it prints JSON, and with  -o FILE  it writes a page (.html), a picture
(.png), or data (.json, .csv).

Try  lmlab inspect minimal-pairs RUN pairs.tsv  or  lmlab inspect attention RUN "A text." -o attention.html
"""

from __future__ import annotations

from lmlab.cli.commands import CommandRow

INSIDE, BEHAVIOUR = "Inside the model", "Behaviour"

COMMANDS: dict[str, CommandRow] = {
    row.name: row._replace(folder="lmlab.cli.inspect", group="inspect")
    for row in (
        CommandRow("attention", INSIDE, "Attention of each head: weights, entropy, distance, rollout."),
        CommandRow("forward", INSIDE, "The forward pass step by step, from tokens to the next token."),
        CommandRow("cells", INSIDE, "Cells and neurons that detect quotes, brackets, anything."),
        CommandRow("probing", INSIDE, "What a classifier finds in each layer: parts of speech, number …"),
        CommandRow("senses", INSIDE, "The vectors of one word in many sentences, by sense."),
        CommandRow("attribution", INSIDE, "The tokens that a prediction depends on: gradient × input."),
        CommandRow("neighbours", INSIDE, "The nearest tokens of a word, and analogies."),
        CommandRow("layer-mix", INSIDE, "The layer weights that a fine-tuned run has learnt (ELMo)."),
        CommandRow("bias", BEHAVIOUR, "Which of two groups is more probable, word by word."),
        CommandRow("errors", BEHAVIOUR, "Loops, copies and inventions on unusual input."),
        CommandRow("minimal-pairs", BEHAVIOUR, "Accuracy on pairs of a right and a wrong sentence: BLiMP …"),
        CommandRow("typographic", BEHAVIOUR, "Labels of pictures after a word is written on them (CLIP)."),
        CommandRow("surprisal", BEHAVIOUR, "Surprisal of each word in bits, of one run or of two."),
    )
}
