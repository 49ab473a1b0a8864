"""lmlab report: one page about a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.options import Device, Json, Run
from lmlab.messages import printable


def report(
    run: Run,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Page to write. (default: report.html in RUN)")
    ] = None,
    file: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Text file to read. (default: the held-out text)")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    json_: Json = False,
    device: Device = "auto",
) -> None:
    """Write one page about a run: curve, samples, surprisal, cost.

    Examples:

      lmlab report runs/book

      lmlab report runs/book -o book.html --open

      lmlab report runs/imported --file book.txt

    The page is one file that needs nothing else. It says what is missing from the run. With --json no page is written.
    """
    if (run / "scores.json").is_file() and output is None and not file and not json_:
        _report_task(run, open_=open_)
        return
    from lmlab.cli.console import progress_bar
    from lmlab.cli.texts import documents_of, read_documents
    from lmlab.runs.report import gather_facts
    from lmlab.training.devices import choose_device

    path = output or run / "report.html"
    if not json_:
        _check(path, run)
    texts = read_documents(file, documents=documents_of(run)) if file else None
    with progress_bar("scoring") as progress:
        facts = gather_facts(run, texts=texts, device=choose_device(device), progress=progress)
    if json_:
        import json

        print(json.dumps(facts, ensure_ascii=False))
        return
    from lmlab.files import write_bytes
    from lmlab.pages.run import make_page

    write_bytes(path, make_page(facts).encode())
    print(printable(f"wrote {path}"))
    for part, reason in facts["left_out"].items():
        print(f"  without {part}: {reason}")
    if open_:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())


def _report_task(run: Path, *, open_: bool) -> None:
    """The page of a fine-tuned run, a learning curve or a comparison, made again from its scores."""
    from lmlab.transfer.report import write_report
    from lmlab.transfer.study import read_study

    path = write_report(read_study(run), run)
    print(printable(f"wrote {path}"))
    if open_:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())


def _check(path: Path, run: Path) -> None:
    """Raise an error if the page cannot be written, or if another file than an earlier report is there."""
    from lmlab.cli.texts import check_output
    from lmlab.pages.run import MARK

    if run.is_dir() or path.parent != run:  # else loading the run says what is wrong
        check_output("-o", path)
    if not path.exists():
        return
    with path.open("rb") as file:
        ours = MARK.encode() in file.read(2000)
    if not ours:
        raise ValueError(f"{path} is there already and is not a report by lmlab: give another name with -o")
