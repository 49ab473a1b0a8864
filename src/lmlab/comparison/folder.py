"""A comparison in a folder: run it, add runs to it, and publish its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from lmlab.comparison import joining
from lmlab.comparison.conditions import check_folder, read_conditions
from lmlab.comparison.leaderboard import Board, make_board, read_entries, read_rankings, to_csv
from lmlab.comparison.plan import Conditions, Skipped, plan
from lmlab.comparison.plots import all_charts
from lmlab.comparison.ranking import takes_part
from lmlab.comparison.records import ComparedRun, read_record, write_record
from lmlab.comparison.report import Passage, make_report
from lmlab.comparison.runner import Results, Unwatched, Watcher, prepare_corpora, read_tests, train_and_score
from lmlab.comparison.tracks import tracks_of
from lmlab.files import write_bytes
from lmlab.pages.figures import save_charts
from lmlab.runs.run_files import CONDITIONS, LOCK, check_not_read, hold
from lmlab.runs.storage import read_json, write_json
from lmlab.runs.upgrade import upgrade_saved
from lmlab.tokenizers.training import is_path


class Published(NamedTuple):
    """The result, and where it is."""

    board: Board
    report: Path
    png: bool  # whether there are PNG copies of the charts

    def _repr_html_(self) -> str:
        """In a notebook: the report."""
        from lmlab.pages.views import show_page

        return show_page(self.report.read_text(encoding="utf-8"), height=720)


def run_comparison(
    conditions: Conditions,
    folder: Path,
    *,
    overwrite: bool = False,
    csv: bool = False,
    processes: int = 1,
    watcher: Watcher | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Published:
    """Train, score and rank every system; called again on the same folder, it resumes."""
    replacing = overwrite and (folder / CONDITIONS).is_file()
    if replacing:
        check_not_read(folder, [*conditions.data.on_disk(), *filter(is_path, conditions.tokenizers.values())])
    else:
        check_folder(conditions, folder)
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with hold(folder):
            results = train_and_score(
                conditions,
                folder,
                replacing=replacing,
                processes=processes,
                watcher=watcher,
                interrupted=interrupted,
            )
            return publish(results, folder, added=read_added(results, folder), csv=csv)
    finally:
        if not (folder / CONDITIONS).is_file():  # nothing was begun
            (folder / LOCK).unlink(missing_ok=True)
            if new:
                folder.rmdir()


def add(runs: Sequence[Path], folder: Path, *, csv: bool = False) -> Published:
    """Add runs from elsewhere to the comparison in a folder."""
    conditions = read_conditions(folder)
    with hold(folder):
        results = reread(conditions, folder)
        if not results.records:
            raise ValueError(f"no model of {folder} has been scored yet; resume with: lmlab compare --resume {folder}")
        added = {record.name: record for record in read_added(results, folder)}
        for path in runs:
            names = {planned.system for planned in results.planned_runs} | {
                planned.name for planned in results.planned_runs
            }
            here = {name for name, record in added.items() if Path(record.run or "").resolve() == path.resolve()}
            record = joining.join(
                path,
                description=results.description,
                tests=results.tests,
                names=names | (added.keys() - here),
                records=[*results.records.values(), *(added[name] for name in added.keys() - here)],
            )
            write_record(folder, record)
            added[record.name] = record
        results.description["added"] = sorted(added)
        write_json(folder / CONDITIONS, results.description)
        return publish(results, folder, added=list(added.values()), csv=csv or (folder / "leaderboard.csv").is_file())


def reread(conditions: Conditions, folder: Path) -> Results:
    """The results that are in a folder, without training anything."""
    corpora = prepare_corpora(conditions, Unwatched())
    description = upgrade_saved(read_json(folder / CONDITIONS))
    if next(iter(corpora.values())).text_fingerprint != description["text_sha256"]:
        raise ValueError(
            f"the text of {folder} has changed since the comparison was made, so nothing can be added to it"
        )
    planned_runs, failures = plan(conditions, corpora)
    records = {each.name: found for each in planned_runs if (found := read_record(folder, each.name)) is not None}
    board = read_json(folder / "leaderboard.json") if (folder / "leaderboard.json").is_file() else {}
    errors = {entry.name: entry.error for entry in read_entries(board) if entry.status == "failed"}
    failures += [
        Skipped(each.name, each.system, errors.get(each.system, "not trained yet"))
        for each in planned_runs
        if each.name not in records
    ]
    return Results(description, read_tests(conditions, corpora), planned_runs, records, failures)


def read_added(results: Results, folder: Path) -> list[ComparedRun]:
    """Return the records of runs that were added earlier."""
    return [
        ComparedRun.from_json(read_json(folder / "scores" / f"{name}.json")) for name in results.description["added"]
    ]


def publish(results: Results, folder: Path, *, added: Sequence[ComparedRun] = (), csv: bool = False) -> Published:
    """Write leaderboard.json, report.html, the charts and, if wanted, leaderboard.csv."""
    board = make_board(results, added=added)
    write_json(folder / "leaderboard.json", board)
    passages: dict[tuple[str, str], Passage] = {}
    for record in [*reversed(results.records.values()), *added]:
        for track in (each for each in tracks_of(record.system, record.scores.data) if takes_part(record, each)):
            name = record.system if record.added is None else record.name
            passages[track.name, name] = record.scores.in_track(track.name).passage
    write_bytes(folder / "report.html", make_report(board, passages).encode())
    png = save_charts(all_charts(read_rankings(board)), folder / "plots")
    if csv:
        write_bytes(folder / "leaderboard.csv", to_csv(board).encode())
    return Published(board, folder / "report.html", png)
