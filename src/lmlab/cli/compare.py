"""lmlab compare: every model on the same text, under the same budget."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmlab.cli.errors import format_option
from lmlab.cli.options import Documents, Seeds, Settings, Size, Split, Test, Valid, parse_fractions, split_commas

if TYPE_CHECKING:
    from lmlab.comparison.folder import Published
    from lmlab.comparison.plan import Conditions

MODELS = "ngram,nplm,lstm,gpt2"
BUDGET = "60s"


def compare(
    context: typer.Context,
    text: Annotated[
        list[str] | None,
        typer.Argument(help="Files, folders, globs, .gz or 'builtin'; or a comparison's folder."),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder of the comparison.")] = None,
    models: Annotated[str, typer.Option(help="Models with commas between them, or all, or masked.")] = MODELS,
    budget: Annotated[
        str, typer.Option(help="Training budget of each: 60s, 5Mtokens, 300steps, 3epochs or 1e13flops.")
    ] = BUDGET,
    size: Size = None,
    tokenizer: Annotated[
        list[str] | None,
        typer.Option(help="Tokenizer of all, own, or MODEL=SPEC; repeatable. (default: bpe:4096)"),
    ] = None,
    match: Annotated[
        str | None, typer.Option(metavar="parameters[=N]", help="Give every network the same number of parameters.")
    ] = None,
    seeds: Seeds = 1,
    seed: Annotated[int, typer.Option(min=0, help="First random seed.")] = 0,
    sweep: Annotated[bool, typer.Option("--sweep", help="Try three learning rates with 20% of the budget.")] = False,
    valid: Valid = None,
    test: Test = None,
    split: Split = None,
    documents: Documents = None,
    settings: Settings = None,
    prompt: Annotated[str | None, typer.Option(help="Prompt of the samples. (default: words of the test text)")] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Also write leaderboard.csv.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted comparison.")] = False,
    processes: Annotated[int, typer.Option(min=1, metavar="N", help="Train N models at the same time.")] = 1,
    runs: Annotated[
        str | None,
        typer.Option(help="Compare these runs on a task, with commas between them.", rich_help_panel="Tasks"),
    ] = None,
    how: Annotated[
        str,
        typer.Option(help="full, frozen, mix, gradual, ulmfit, scratch, with commas.", rich_help_panel="Tasks"),
    ] = "frozen,full,scratch",
    epochs: Annotated[
        float | None,
        typer.Option(min=0.01, help="Passes over the examples. (default: 3; frozen: 20)", rich_help_panel="Tasks"),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns by name or number: a=review,label=stars.", rich_help_panel="Tasks")
    ] = None,
    leaks: Annotated[
        str, typer.Option(help="Test examples also in training: keep, train or test.", rich_help_panel="Tasks")
    ] = "keep",
    drop_bad_labels: Annotated[
        bool,
        typer.Option("--drop-bad-labels", help="Skip rows whose score is not a number.", rich_help_panel="Tasks"),
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON only.", rich_help_panel="Tasks")] = False,
    add: Annotated[
        list[Path] | None, typer.Option(metavar="RUN", help="Add this run to a comparison; repeatable.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing comparison.")] = False,
) -> None:
    """Train models on the same text and budget, and rank them.

    Examples:

      lmlab compare book.txt --models ngram,lstm,gpt2 --budget 60s -o compared

      lmlab compare corpus/ --models all --budget 2e12flops --match parameters --seeds 3 -o compared

      lmlab compare book.txt --models gpt2,bert,electra --budget 5min -o compared

      lmlab compare chorales.json --models lstm,gpt2,music-transformer --budget 1e12flops -o compared

      lmlab compare pictures/ --tokenizer pixels:4 --set data.size=14 --models ngram,lstm,gpt2 -o compared

      lmlab compare --resume compared

      lmlab compare --add runs/other compared

      lmlab compare reviews.tsv --runs runs/lstm,runs/gpt2,runs/bert --how frozen,full,scratch -o report

    --processes N trains N models side by side, each with its share of the threads: faster, with the same results; a
    budget in time buys less for each.

    Models are ranked by bits per byte of test text that none was trained on; masked language models are ranked
    separately, by their pseudo-log-likelihood. If it is interrupted, the same command resumes it.

    --models all are the left-to-right language models, masked the masked ones. --tokenizer is one for all (bpe:N,
    unigram:N, bytes, characters, words …), own (what each was published with), or MODEL=SPEC for one of them. Music is
    ranked by nats per event or note, pictures as pixels by bits per dimension, with one tokenizer for all. A
    --prompt with \\[MASK] is also filled by masked models. --leaks removes such examples from train or from test. With
    --runs, TEXT is a file of labelled examples (see: lmlab finetune).
    """
    from lmlab.runs.run_files import is_study

    given = _given(context)
    if runs is not None:
        _compare_runs(given, runs=runs, how=how)
        return
    task_only = {"how", "epochs", "columns", "leaks", "drop_bad_labels"} | ({"json_"} if not resume else set())
    if wrong := sorted(given.keys() & task_only):
        raise ValueError(f"{_options(wrong)} is for runs on a task: add --runs RUN,RUN")
    if add:
        if dropped := sorted(given.keys() - {"add", "text", "output", "csv"}):
            raise ValueError(f"--add lets a run join a comparison as it is, so it takes no {_options(dropped)}")
        _report(_add(add, _folder(text, output), csv=csv))
        return
    if resume and (not text or output is None):
        folder = _folder(text, output)
        if is_study(folder):
            _resume_study(folder, given)
            return
        from lmlab.comparison.folder import run_comparison

        processes = given.pop("processes", 1)
        conditions = _resumed(folder, given)
        watch(lambda **watching: run_comparison(conditions, folder, csv=csv, processes=processes, **watching), folder)
        return
    if not text:
        raise ValueError("name a text: lmlab compare book.txt -o compared (builtin is Python's documentation)")
    if output is None:
        raise ValueError("give -o FOLDER, the folder of the comparison, for instance -o compared")
    from lmlab.comparison.compare import compare as compare_models

    options: dict[str, Any] = {
        "models": models,
        "budget": budget,
        "tokenizer": tokenizer or [],
        "size": size,
        "match": match,
        "seeds": seeds,
        "seed": seed,
        "sweep": sweep,
        "prompt": prompt,
        "processes": processes,
        **_data(valid=valid, test=test, split=split, documents=documents),
        "settings": {
            **{f"train.{name}": value for name, value in _groups(settings)["train"].items()},
            **{f"data.{name}": value for name, value in _groups(settings)["data"].items()},
        },
    }
    watch(
        lambda **watching: compare_models(text, output=output, csv=csv, overwrite=overwrite, **options, **watching),
        output,
    )


def _resume_study(folder: Path, given: Mapping[str, Any]) -> None:
    """Resume a comparison of runs on a task with the settings that its folder keeps."""
    from lmlab.cli.finetune import resume_folder

    if wrong := sorted(given.keys() - {"resume", "text", "output", "json_"}):
        raise ValueError(
            f"--resume {folder} takes all settings from the folder, so it takes no {_options(wrong)}; to say them "
            "again, give the whole command, the examples and the --runs included"
        )
    resume_folder(folder, json_=given.get("json_", False))


def _compare_runs(given: Mapping[str, Any], *, runs: str, how: str) -> None:
    """Runs on a task, each learning it in several ways."""
    from lmlab.cli.finetune import run_with_progress
    from lmlab.cli.study_scores import print_study
    from lmlab.data.readers.labelled.columns import parse_columns
    from lmlab.transfer.finetune import compare_runs

    known = {
        "text",
        "output",
        "runs",
        "how",
        "epochs",
        "columns",
        "json_",
        "valid",
        "test",
        "seeds",
        "seed",
        "settings",
    }
    known |= {"overwrite", "resume", "leaks", "drop_bad_labels"}
    if wrong := sorted(given.keys() - known):
        raise ValueError(
            f"{_options(wrong)} is for training from scratch, and --runs are trained already; leave it out"
        )
    texts, output = given.get("text") or [], given.get("output")
    if len(texts) != 1:
        raise ValueError("name one file of examples: lmlab compare reviews.tsv --runs runs/a,runs/b -o report")
    if output is None:
        raise ValueError("give -o FOLDER, the folder of the comparison, for instance -o report")
    if given.get("resume") and given.get("overwrite"):
        raise ValueError("--resume continues a comparison and --overwrite replaces it: give one of them")
    paths = [Path(part) for part in split_commas("--runs", runs, example="runs/a,runs/b")]
    hows = split_commas("--how", how, example="frozen,full")
    columns = given.get("columns")
    for name in ("valid", "test"):
        if len(given.get(name) or ()) > 1:
            raise ValueError(f"--{name} {f' --{name} '.join(given[name])}: of labelled examples, give one file")
    valid, test = ((given.get(name) or [None])[0] for name in ("valid", "test"))
    done = run_with_progress(
        lambda **shown: compare_runs(
            paths,
            texts[0],
            output=output,
            how=hows,
            valid=valid,
            test=test,
            columns=parse_columns(columns) if columns else None,
            leaks=given.get("leaks"),
            drop_bad_labels=given.get("drop_bad_labels"),
            seeds=given.get("seeds", 1),
            seed=given.get("seed", 0),
            epochs=given.get("epochs"),
            train=_groups(given.get("settings"))["train"],
            overwrite=given.get("overwrite", False),
            resume=given.get("resume", False),
            notify=lambda line: None if given.get("json_") else print(line, file=sys.stderr),
            **shown,
        ),
        output,
    )
    print_study(done.study, output, json_=given.get("json_", False))


def _data(
    *,
    valid: list[str] | None = None,
    test: list[str] | None = None,
    split: str | None = None,
    documents: str | None = None,
) -> dict[str, Any]:
    """Settings of the text, as far as they are given."""
    values = {"valid": valid or None, "test": test or None, "split": parse_fractions(split), "documents": documents}
    return {name: value for name, value in values.items() if value is not None}


def _groups(settings: list[str] | None) -> dict[str, dict[str, Any]]:
    """Settings of training and of the data, which are the same for all."""
    from lmlab.config import apply_settings

    groups = apply_settings({"train": {}, "data": {}}, settings or [])
    if set(groups) != {"train", "data"}:
        raise ValueError("--set of a comparison is train.KEY=VALUE or data.KEY=VALUE, the same for all models")
    return groups


def _given(context: typer.Context) -> dict[str, Any]:
    """The options that were typed, not those that have their default."""
    return {
        name: value
        for name, value in context.params.items()
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    }


def _options(names: Iterable[str]) -> str:
    return ", ".join(map(format_option, names))


def _resumed(folder: Path, given: Mapping[str, Any]) -> Conditions:
    """The conditions of a comparison to resume; a ValueError names the options that differ."""
    from lmlab.comparison.conditions import describe_changes, read_conditions
    from lmlab.comparison.plan import choose_systems, choose_tokenizers

    if "overwrite" in given:
        raise ValueError("--resume continues a comparison and --overwrite replaces it: give one of them")
    conditions = read_conditions(folder)
    before = conditions.model_dump()
    now = {**before, **{name: given[name] for name in ("budget", "size", "match", "sweep", "prompt") if name in given}}
    if "models" in given:
        now["systems"] = choose_systems(given["models"])
    if "tokenizer" in given:
        now["tokenizers"] = choose_tokenizers(now["systems"], given["tokenizer"])
    if given.keys() & {"seed", "seeds"}:
        first, count = given.get("seed", conditions.seeds[0]), given.get("seeds", len(conditions.seeds))
        now["seeds"] = list(range(first, first + count))
    text = {name: given[name] for name in ("valid", "test", "split", "documents") if name in given}
    groups = _groups(given.get("settings"))
    now["data"] = {**before["data"], **_data(**text), **groups["data"]}
    now["train"] = {**before["train"], **groups["train"]}
    if changed := describe_changes(before, now):
        raise ValueError(
            f"--resume continues {folder} as it was started, and this differs: {'; '.join(changed)}. Leave it out, or "
            "begin a comparison of your own with another -o"
        )
    return conditions


def _folder(text: list[str] | None, output: Path | None) -> Path:
    """The comparison that is meant: -o, or the one thing named."""
    if output is not None and not text:
        return output
    if text and len(text) == 1 and output is None:
        return Path(text[0])
    raise ValueError("name the folder of one comparison, for instance: lmlab compare --resume compared")


def watch(work: Callable[..., Published], folder: Path) -> None:
    """Run a comparison with the live table, and show its leaderboard."""
    from lmlab.cli.leaderboard import LiveTable
    from lmlab.cli.progress import catch_interrupts
    from lmlab.comparison.runner import Interruption

    try:
        with LiveTable() as table:
            done = work(watcher=table, interrupted=catch_interrupts())
    except Interruption:
        print(f"Interrupted and saved. Resume with: lmlab compare --resume {folder}")
        sys.exit(130)
    if table.idle:
        print(f"{folder} was finished already with the same settings: nothing was trained", file=sys.stderr)
    _report(done)


def _add(runs: list[Path], folder: Path, *, csv: bool) -> Published:
    from lmlab.comparison.folder import add

    return add(runs, folder, csv=csv)


def _report(done: Published) -> None:
    from lmlab.cli.console import Console
    from lmlab.cli.leaderboard import show
    from lmlab.comparison.leaderboard import read_rankings

    console = Console(highlight=False)
    show(done.board, console)
    plots: Any = "SVG and PNG" if done.png else r"SVG; pip install 'lmlab\[report]' adds PNG"
    console.print(
        f"\nReport: [bold]{done.report}[/bold]  (charts in {done.report.parent / 'plots'}: {plots})", soft_wrap=True
    )
    if not any(ranking.ranked for ranking in read_rankings(done.board)):
        sys.exit(1)
