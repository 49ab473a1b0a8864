"""lmlab inspect probes: what can be read off each layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmlab.cli.inspect.showing import DEVICE, JSON, OUTPUT, REPLACE

if TYPE_CHECKING:
    from lmlab.analysis.probing_sets import Item


def probes(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory of any neural model.")],
    train: Annotated[
        Path, typer.Argument(metavar="TRAIN", help="CoNLL-U, or a table with text and label, to learn from.")
    ],
    test: Annotated[
        Path | None, typer.Argument(metavar="[TEST]", help="The same to be judged by. (default: a fifth of TRAIN)")
    ] = None,
    what: Annotated[
        str, typer.Option(help="Of CoNLL-U: pos, xpos, number, tense, depth, distance, relation (of word and head).")
    ] = "pos",
    kind: Annotated[str, typer.Option("--probe", help="linear, or mlp (one hidden layer).")] = "linear",
    length: Annotated[
        bool, typer.Option("--length", help="Give the minimum description length too (Voita & Titov 2020).")
    ] = False,
    alone: Annotated[
        bool, typer.Option("--alone", help="Leave out the control task and the twin with random weights.")
    ] = False,
    limit: Annotated[int, typer.Option(min=2, help="Sentences read of each file, at most.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the control labels, the twin and the split.")] = 0,
    output: Annotated[Path | None, typer.Option("-o", "--output", help=OUTPUT)] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON)] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=REPLACE)] = False,
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
) -> None:
    """What can be read off each layer? Parts of speech, number, trees …

    Examples:

      lmlab inspect probes runs/bert dev.conllu test.conllu --what pos

      lmlab inspect probes runs/lstm dev.conllu test.conllu --what number --probe mlp --length -o number.html

      lmlab inspect probes runs/gpt2 reviews.tsv

    A small classifier is fitted to the frozen vectors of each layer. Beside its accuracy stand that on a control task
    (random labels by type of word), the difference (selectivity), and that on a twin with random weights: without
    them a high accuracy says little.
    """
    from lmlab.analysis.probing import probe
    from lmlab.cli.bars import counting
    from lmlab.cli.inspect.showing import check_output, open_run, show

    check_output(output, inputs=[run, train, test], overwrite=overwrite)
    name, learnt = _read(train, what, limit)
    judged = _read(test, what, limit)[1] if test is not None else []
    if test is None:
        import random

        random.Random(seed).shuffle(learnt)
        fifth = max(1, len(learnt) // 5)
        learnt, judged = learnt[fifth:], learnt[:fifth]
    with counting("probing") as progress:
        found = probe(
            open_run(run, device),
            learnt,
            judged,
            name=name,
            kind=kind,
            control=not alone,
            twin=not alone,
            length=length,
            seed=seed,
            progress=progress,
        )
    show(found, output=output, json_=json_, about=str(run))


def _read(path: Path, what: str, limit: int) -> tuple[str, list[Item]]:
    """The name of the questions, and the questions of a file."""
    from lmlab.analysis.probing_sets import ask, ask_sentences
    from lmlab.analysis.readers import read_treebank
    from lmlab.data.readers.strict_text import read_whole
    from lmlab.data.readers.tagged import is_conllu

    if is_conllu(str(path), read_whole(path)):
        return what, ask(read_treebank(path)[:limit], what)
    from lmlab.data.readers.labelled import read_labelled

    labelled = read_labelled(path)
    if labelled.task != "classification":
        raise ValueError(f"{path} holds {labelled.task}: probes ask for classes of texts, or give a CoNLL-U file")
    examples = labelled.train[:limit]
    return "label", ask_sentences([str(each.a) for each in examples], [str(each.label) for each in examples])
