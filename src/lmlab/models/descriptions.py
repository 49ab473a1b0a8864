"""What each ability is called, without torch: for lists, help and errors (`abilities` has the protocols)."""

from __future__ import annotations

from typing import NamedTuple


class Description(NamedTuple):
    """An ability as users are told of it."""

    name: str  # in the lineage, in leaderboards
    does: str  # "it …"
    uses: str  # the verbs for it
    systems: str  # some that have it
    title: str  # over the systems that are known for it
    commands: tuple[str, ...] = ()
    """What to try with a run that has it: {run} is its folder, {prompt} a few words, {blank} the same with a blank."""
    instead: str = ""  # how its systems are compared, where `lmlab compare` has no contest for it


DESCRIPTIONS: dict[str, Description] = {
    each.name: each
    for each in (
        Description(
            "next token",
            "predicts the next token",
            "lmlab generate, lmlab next and lmlab score",
            "ngram, lstm or gpt2",
            "They predict the next token, from left to right",
            ("lmlab generate {run} {prompt}", "lmlab score {run} FILE"),
        ),
        Description(
            "blanks",
            "predicts masked tokens (fills blanks)",
            "lmlab fill and lmlab score",
            "bert, roberta, albert or electra",
            "They predict masked tokens: they fill blanks, knowing the text on both sides",
            ("lmlab fill {run} {blank}", "lmlab embed {run} FILE -o out.npy"),
        ),
        Description(
            "target text",
            "writes a target text from a source",
            "lmlab translate and lmlab evaluate",
            "transformer, bart or seq2seq: lmlab train transformer --source FILE --target FILE -o RUN",
            "They write a target text from a source",
            ("lmlab translate {run} FILE", "lmlab evaluate {run} --source … --target …"),
            "train it on pairs (lmlab train {name} --source … --target … -o RUN), and compare translations with: "
            "lmlab evaluate RUN --source … --target …",
        ),
        Description(
            "replaced tokens", "detects replaced tokens", "lmlab embed", "electra", "They detect replaced tokens"
        ),
        Description(
            "pairs", "judges sentence pairs (NSP, SOP)", "training", "bert or albert", "They judge sentence pairs"
        ),
        Description(
            "vectors",
            "gives vectors of its layers",
            "lmlab embed",
            "lstm, gpt2 or bert",
            "They give vectors",
        ),
    )
}
