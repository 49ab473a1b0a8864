"""lmlab inspect probing: what a classifier finds in each layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmlab.cli.options import Device, Json, NeuralRun, NoControls, OutputAnalysis, Overwrite

if TYPE_CHECKING:
    from lmlab.analysis.probing_sets import ProbedSentence


def probing(
    run: NeuralRun,
    train: Annotated[Path, typer.Argument(metavar="TRAIN", help="CoNLL-U, a table with text and label, or pictures.")],
    test: Annotated[
        Path | None, typer.Argument(metavar="[TEST]", help="Test data of the same kind. (default: part of TRAIN)")
    ] = None,
    label: Annotated[
        str, typer.Option(help="Of CoNLL-U: pos, xpos, number, tense, depth, distance, relation.")
    ] = "pos",
    kind: Annotated[str, typer.Option("--probe", help="linear, or mlp (one hidden layer).")] = "linear",
    description_length: Annotated[
        bool, typer.Option("--description-length", help="Add the minimum description length.")
    ] = False,
    no_controls: NoControls = False,
    limit: Annotated[int, typer.Option(min=2, help="Maximum number of sentences or pictures of each.")] = 1000,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    output: OutputAnalysis = None,
    json_: Json = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """What a classifier finds in each layer: parts of speech, number …

    Examples:

      lmlab inspect probing runs/bert dev.conllu test.conllu --label pos

      lmlab inspect probing runs/lstm dev.conllu test.conllu --label number --probe mlp --description-length

      lmlab inspect probing runs/gpt2 reviews.tsv

      lmlab inspect probing runs/vit pictures/ -o probes.html

    A small classifier is trained on the frozen vectors of each layer. A probe can learn the task by itself, so three
    controls are shown: the accuracy on a control task (random labels by word type), the difference (selectivity), and
    the accuracy on the same model with random weights. The description length is that of Voita & Titov (2020).

    To a model of pictures (vit, clip) give pictures with classes: a folder for each class, or a table. The
    vector of a picture in a layer is the mean over its patches; a probe of the pixels stands beside them.
    """
    from lmlab.analysis.pictures.attention import reads_pictures
    from lmlab.analysis.pictures.probing import probe_pictures
    from lmlab.analysis.probing import probe
    from lmlab.cli.console import progress_bar
    from lmlab.cli.inspect.display import check_output, open_run, show

    check_output(output, inputs=[run, train, test], overwrite=overwrite)
    model = open_run(run, device)
    if reads_pictures(model):
        with progress_bar("probing") as progress:
            probes = probe_pictures(
                model,
                str(train),
                None if test is None else str(test),
                kind=kind,
                twin=not no_controls,
                length=description_length,
                limit=limit,
                seed=seed,
                progress=progress,
            )
        show(probes, output=output, json_=json_, subtitle=str(run))
        return
    name, learnt = _read(train, label, limit)
    judged = _read(test, label, limit)[1] if test is not None else []
    if test is None:
        import random

        random.Random(seed).shuffle(learnt)
        fifth = max(1, len(learnt) // 5)
        learnt, judged = learnt[fifth:], learnt[:fifth]
    with progress_bar("probing") as progress:
        found = probe(
            model,
            learnt,
            judged,
            name=name,
            kind=kind,
            control=not no_controls,
            twin=not no_controls,
            length=description_length,
            seed=seed,
            progress=progress,
        )
    show(found, output=output, json_=json_, subtitle=str(run))


def _read(path: Path, label: str, limit: int) -> tuple[str, list[ProbedSentence]]:
    """The name of the questions, and the questions of a file."""
    from lmlab.analysis.probing_sets import ask, ask_sentences
    from lmlab.analysis.readers import read_treebank
    from lmlab.data.readers.files import read_whole
    from lmlab.data.readers.labelled.conll import is_conllu

    if is_conllu(str(path), read_whole(path)):
        return label, ask(read_treebank(path)[:limit], label)
    from lmlab.data.readers.labelled import read_labelled

    labelled = read_labelled(path)
    if labelled.task != "classification":
        raise ValueError(f"{path} holds {labelled.task}: probes ask for classes of texts, or give a CoNLL-U file")
    examples = labelled.train[:limit]
    return "label", ask_sentences([str(each.a) for each in examples], [str(each.label) for each in examples])
