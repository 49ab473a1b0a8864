"""What each ability is called, without torch: for lists, help and errors (`abilities` has the protocols)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lmlab.models.defaults import System


class Description(NamedTuple):
    """An ability in words."""

    name: str  # in the lineage, in leaderboards
    does: str  # "it …"
    model: str  # what such a model is: "it is …"
    verb: str  # "it cannot …"
    uses: str  # the verbs for it
    systems: str  # some that have it
    title: str  # over the systems that are known for it
    commands: tuple[str, ...] = ()
    """What to try with a run that has it: {run} is its folder, {prompt} a few words, {masked} the same with a mask."""
    instead: str = ""  # how its systems are compared, where `lmlab compare` has no track for it


DESCRIPTIONS: dict[str, Description] = {
    each.name: each
    for each in (
        Description(
            "next token",
            "predicts the next token",
            "a causal (left-to-right) language model",
            "continue plain text",
            "lmlab generate, lmlab next and lmlab score",
            "ngram, lstm or gpt2",
            "Causal language models: they predict the next token, from left to right",
            ("lmlab generate {run} {prompt}", "lmlab score {run} FILE"),
        ),
        Description(
            "both directions",
            "predicts the next token and, by a second model, the previous one",
            "a language model in both directions",
            "predict each token from either side",
            "lmlab embed, lmlab finetune and lmlab score",
            "elmo",
            "Language models in both directions: one predicts the next token, another the previous one",
            ("lmlab embed {run} FILE --layers mix -o out.npy", "lmlab score {run} FILE"),
        ),
        Description(
            "masks",
            "predicts masked tokens",
            "a masked language model",
            "predict masked tokens",
            "lmlab fill and lmlab score",
            "bert, roberta, albert or electra",
            "Masked language models: they predict masked tokens from the text on both sides",
            ("lmlab fill {run} {masked}", "lmlab embed {run} FILE -o out.npy"),
        ),
        Description(
            "any order",
            "predicts tokens in any order",
            "a permutation language model",
            "predict tokens in any order",
            "lmlab fill --order",
            "xlnet",
            "Permutation language models: they predict tokens in any order",
        ),
        Description(
            "transcripts",
            "writes the text of a recording",
            "a speech recognizer",
            "transcribe recordings",
            "lmlab transcribe and lmlab evaluate",
            "whisper: lmlab train whisper clips.tsv -o RUN",
            "Speech recognizers: they write the text of a recording",
            ("lmlab transcribe {run} FILE.wav", "lmlab evaluate {run} clips.tsv"),
            "train it on recordings (lmlab train {name} clips.tsv -o RUN), and compare error rates with: "
            "lmlab evaluate RUN clips.tsv",
        ),
        Description(
            "captions",
            "writes the caption of a picture",
            "a captioner",
            "write captions of pictures",
            "lmlab caption and lmlab evaluate",
            "captioner: lmlab train captioner builtin:scenes -o RUN",
            "Captioners: they write what a picture shows",
            ("lmlab caption {run} PICTURE", "lmlab evaluate {run} captions.tsv"),
            "train it on pictures with captions (lmlab train {name} captions.tsv -o RUN), and compare captions with: "
            "lmlab evaluate RUN captions.tsv",
        ),
        Description(
            "commands",
            "writes the action that a command calls for in a picture",
            "a policy that follows commands",
            "follow commands",
            "lmlab act",
            "policy: lmlab train policy builtin:world -o RUN",
            "Policies with language: they write the action that a command calls for in a picture",
            ("lmlab act {run} --env builtin:world",),
            "train it on pictures with commands and actions (lmlab train {name} DATA -o RUN), and compare success "
            "rates with: lmlab act RUN --env builtin:world",
        ),
        Description(
            "target text",
            "writes a target text from a source",
            "an encoder–decoder",
            "write a target text from a source",
            "lmlab translate and lmlab evaluate",
            "transformer, bart or seq2seq: lmlab train transformer --source FILE --target FILE -o RUN",
            "Encoder–decoders: they write a target text from a source text",
            ("lmlab translate {run} FILE", "lmlab evaluate {run} --source … --target …"),
            "train it on pairs (lmlab train {name} --source … --target … -o RUN), and compare translations with: "
            "lmlab evaluate RUN --source … --target …",
        ),
        Description(
            "replaced tokens",
            "detects replaced tokens",
            "a replaced-token detector",
            "detect replaced tokens",
            "lmlab embed",
            "electra",
            "They detect replaced tokens",
        ),
        Description(
            "pairs",
            "classifies sentence pairs (NSP, SOP)",
            "a sentence-pair classifier",
            "classify sentence pairs (NSP, SOP)",
            "training",
            "bert or albert",
            "They classify sentence pairs",
        ),
        Description(
            "neighbours",
            "predicts the words around a word",
            "a model of words without context (word vectors)",
            "predict the words around a word",
            "lmlab embed and lmlab convert",
            "word2vec",
            "Word vectors: each word has one vector, whatever its context",
            ("lmlab convert {run} vectors.txt --to word2vec", "lmlab embed {run} FILE -o out.npy"),
            "train it on text (lmlab train {name} TEXT -o RUN), and compare vectors by analogies and similarities "
            "(docs/guides/word-vectors.md)",
        ),
        Description(
            "pictures and texts",
            "gives pictures and texts vectors in one space",
            "a model of pictures and texts in one space",
            "compare pictures with texts",
            "lmlab find, lmlab embed, lmlab predict and lmlab evaluate",
            "clip: lmlab train clip DATA -o RUN",
            "Pictures and texts in one space: a picture is near the texts that describe it",
            ("lmlab find {run} {prompt} FOLDER", "lmlab predict {run} PICTURE --labels LABEL,LABEL"),
            "train it on pictures with captions (lmlab train {name} DATA -o RUN), and compare retrieval with: "
            "lmlab evaluate RUN DATA",
        ),
        Description(
            "words and regions",
            "reads a text with the regions of a picture",
            "a model of texts with pictures",
            "read a text with a picture",
            "lmlab finetune, lmlab evaluate and lmlab predict",
            "visualbert or vilbert: lmlab train visualbert DATA -o RUN",
            "Texts with pictures: they read a text together with the regions of a picture",
            ("lmlab fill {run} {masked} --picture test:0", "lmlab finetune {run} DATA -o NEW"),
            "train it on pictures with captions (lmlab train {name} DATA -o RUN), fine-tune it on true and false "
            "sentences (lmlab finetune RUN DATA -o NEW), and compare accuracies with: lmlab evaluate NEW DATA",
        ),
        Description(
            "actions",
            "chooses actions that reach a given return",
            "a policy",
            "choose actions",
            "lmlab act and lmlab evaluate",
            "decision-transformer: lmlab train decision-transformer EPISODES -o RUN",
            "Policies: they choose actions that reach a given return",
            ("lmlab act {run} --env CartPole-v1 --return 500", "lmlab evaluate {run} EPISODES"),
            "train it on episodes (lmlab train {name} EPISODES -o RUN), and compare the returns that it reaches with: "
            "lmlab act RUN --env NAME",
        ),
        Description(
            "vectors",
            "gives contextual vectors (embeddings)",
            "an encoder without a prediction head",
            "give contextual vectors (embeddings)",
            "lmlab embed",
            "lstm, gpt2 or bert",
            "They give contextual vectors",
        ),
    )
}


def describe_use(run: str | Path, system: System) -> str:
    """What to do with a run that has learnt no task, where one is asked for: the commands of its system."""
    known = DESCRIPTIONS[system.does[0]]
    own = [command.format(run=run, prompt='"…"', masked='"… [MASK]"') for command in known.commands]
    if known.name in ("transcripts", "captions", "commands", "actions"):
        return f"{run} is {known.model} and has learnt no task: {' or '.join(own)}"
    translators = "; a translator takes --source and --target" if known.name == "target text" else ""
    return f"{run} has not learnt a task; fine-tune it: lmlab finetune {run} DATA -o NEW{translators}"
