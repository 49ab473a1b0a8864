"""Does pre-training on 24 million words pay? Every family on the books with one tokenizer and equal FLOPs.

    python benchmarks/books.py run FOLDER [--budgets 2e13] [--systems gpt2 bert …]
    python benchmarks/books.py evaluate FOLDER [--systems …] [--limit 200] [--passages 1000]
    python benchmarks/books.py tables FOLDER

`run` trains recipes/books-*.toml, the most informative systems first, each in FOLDER/SYSTEM-BUDGET; runs that were
interrupted go on where they were, finished ones are left as they are. `evaluate` scores the finished runs, each once
(FOLDER/scores): bits per byte of test books with the interval of `lmlab compare`, in the track that the system is
known for (ELMo: the mean of both directions; masked systems: masked tokens and pseudo bits per byte, on a part); BLiMP,
`limit` pairs of each paradigm; agreement (Gulordava; `limit` of Linzen's for each number of attractors); LAMBADA.
`tables` prints them as Markdown, with the exponent of a power law where a system has several budgets. An n-gram has no
budget.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agreement import first_of_each
from lmlab import load
from lmlab.analysis.minimal_pairs import PUBLISHED, compare_pairs
from lmlab.analysis.pair_sets import PairSet, read_pairs
from lmlab.comparison.shared_test_data import Tests, make_test_text, shorten, shorten_for_pseudo
from lmlab.comparison.tracks import tracks_of
from lmlab.config import apply_settings, read_toml
from lmlab.language_model import LanguageModel
from lmlab.prompting.asking import ask
from lmlab.prompting.items import read_items
from lmlab.prompting.templates import find_template
from lmlab.runs.held_out import reopen_corpus
from lmlab.runs.jobs import Silent
from lmlab.runs.recipe_record import read_record
from study import HERE, clock, complete, need, unpack_books

ORDER = (
    *("ngram", "gpt2", "bert", "lstm", "elmo", "electra", "llama", "xlnet", "transformer-xl"),
    *("roberta", "albert", "awd-lstm", "gru", "nplm", "reformer", "bart"),
)
"""The systems, the most informative first."""
CHARACTERS = 400_000
"""Of the test books, what bits per byte are computed on: the beginnings of all five."""
SETS = ("BLiMP", "Gulordava", "Linzen")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["run", "evaluate", "tables"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--budgets", nargs="+", default=["2e13"], help="of `run`, in FLOPs")
    parser.add_argument("--systems", nargs="+", choices=ORDER, default=list(ORDER))
    parser.add_argument("--limit", type=int, default=200, help="pairs of each paradigm")
    parser.add_argument("--passages", type=int, default=1000, help="of LAMBADA")
    given = parser.parse_args()
    if given.action == "run":
        for budget in given.budgets:
            for system in given.systems:
                train(system, budget, given.folder)
    elif given.action == "evaluate":
        for run in finished(given.folder, given.systems):
            evaluate(run, given)
    else:
        print_tables([read_scores(run) for run in finished(given.folder, given.systems) if scores_file(run).is_file()])


def train(system: str, budget: str, folder: Path) -> None:
    """A run of a system, from its recipe; trained now, resumed, or found."""
    os.environ["LMLAB_BOOKS"] = str(unpack_books(folder.resolve()))
    recipe = read_toml(HERE.parent / "recipes" / f"books-{system}.toml")
    if system == "ngram":
        complete(recipe, folder / system)
    else:
        complete(apply_settings(recipe, [f"train.budget={budget}flops"]), folder / f"{system}-{budget}")


def finished(folder: Path, systems: Sequence[str]) -> Iterator[Path]:
    """The finished runs, system by system, the smallest budget first."""
    for system in systems:
        runs = [folder / system, *folder.glob(f"{system}-*")]
        named = {run: run.name.removeprefix(system).removeprefix("-") or "0" for run in runs}
        budgets = {run: float(name) for run, name in named.items() if name[0].isdigit()}
        yield from (run for run in sorted(budgets, key=lambda run: budgets[run]) if (run / "README.md").is_file())


def scores_file(run: Path) -> Path:
    return run.parent / "scores" / f"{run.name}.json"


def read_scores(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(scores_file(run).read_text(encoding="utf-8"))
    return found


def evaluate(run: Path, given: argparse.Namespace) -> None:
    """Score a run and write its scores, where they are not there yet."""
    path = scores_file(run)
    if path.is_file():
        return
    lm, record = load(run), read_record(run)
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    costs = {name: last["cost"][name] for name in ("seconds", "cpu_seconds", "joules")}
    found: dict[str, Any] = {"name": run.name, "system": record.recipe.kind, "date": clock(), **costs}
    found |= {"tokens": last["tokens"], "flops": last["flops"], "parameters": last["parameters"]}
    text = reopen_corpus(record, run, Silent()).test
    found |= score_text(lm, run, list(text.texts()), record.recipe.kind)
    found |= score_grammar(lm, given.limit)
    if found["tracks"][0] == "next token":
        found["lambada"] = last_words(lm, given.passages)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(f"{run.name}: scored", flush=True)


def score_text(lm: LanguageModel, run: Path, books: list[str], system: str) -> dict[str, Any]:
    """Bits per byte with their interval in each track of a system, and the accuracy of masked tokens."""
    test = shorten(make_test_text(books, prompt=None), characters=CHARACTERS)
    tokens = sum(len(lm.text_tokenizer.encode(book)) for book in test.texts)
    tests = Tests(test, shorten_for_pseudo(test, tokens=tokens))
    found: dict[str, Any] = {"tracks": []}
    try:
        tracks = tracks_of(system)
    except ValueError:  # an encoder–decoder has no score of plain text
        return {"tracks": ["target text"]}
    for track in tracks:
        scores = track.evaluate(lm, run, tests, None)
        estimate = track.scores({system: [scores]}, tests).estimate(system)
        found["tracks"].append(track.name)
        found[track.name] = {**estimate._asdict(), **track.summarise([scores], same_tokens=True)}
    return found


def score_grammar(lm: LanguageModel, limit: int) -> dict[str, Any]:
    """The accuracy on minimal pairs by set and by phenomenon, with intervals."""
    data = Path(os.environ["LMLAB_DATA"])
    for name in ("blimp", "colorlessgreen"):
        need(name)
    linzen = read_pairs(data / "colorlessgreen" / "linzen_testset" / "subj_agr_filtered.gold")
    sets = {
        "BLiMP": PairSet("BLiMP", first_of_each(read_pairs(data / "blimp"), limit)),
        "Gulordava": read_pairs(data / "colorlessgreen" / "English" / "generated.gold"),
        "Linzen": PairSet("Linzen", first_of_each(linzen, limit)),
    }
    try:
        pairs = {name: compare_pairs(lm, each) for name, each in sets.items()}
    except ValueError:  # no probability of a sentence
        return {}
    return {
        name: {"": list(each.accuracy)} | {group.phenomenon: list(group[2:5]) for group in each.groups()}
        for name, each in pairs.items()
    }


def last_words(lm: LanguageModel, passages: int) -> list[float | None]:
    """The accuracy on LAMBADA's last words, with its interval."""
    need("lambada")
    template = find_template("last-word")
    items = read_items(template, Path(os.environ["LMLAB_DATA"]) / "lambada" / "lambada_test.jsonl")
    answers = ask(lm, template, items, most=passages).answers[0]
    return list(answers.scores[answers.main])


def print_tables(found: list[dict[str, Any]]) -> None:
    """Costs and text, then grammar by phenomenon."""
    columns = ("run", "parameters", "tokens", "CPU s", "kJ", "bits per byte", "masked tokens", *SETS, "LAMBADA")
    print(f"{clock()}\n\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for each in found:
        costs = [f"{each['parameters']['total'] / 1e6:.2f}M", f"{each['tokens'] / 1e6:.1f}M"]
        costs += [f"{each['cpu_seconds']:,.0f}", f"{each['joules'] / 1e3:.1f}"]
        grammar = [percent(each[name][""]) if name in each else "" for name in SETS]
        cells = [each["name"], *costs, bits(each), masked(each), *grammar, percent(each.get("lambada"))]
        print(f"| {' | '.join(cells)} |")
    print("\n" + "\n".join(f"{system}: bits ∝ FLOPs^{slope:.3f}" for system, slope in exponents(found)))
    graded = [each for each in found if "BLiMP" in each]
    published = PUBLISHED["BLiMP"]
    print(f"\n| BLiMP | {' | '.join(each['name'] for each in graded)} | {' | '.join(next(iter(published.values())))} |")
    print("|---" * (1 + len(graded) + len(next(iter(published.values())))) + "|")
    for phenomenon in graded[0]["BLiMP"] if graded else ():
        cells = [f"{100 * each['BLiMP'][phenomenon][0]:.1f}" for each in graded]
        cells += [f"{100 * value:.1f}" for value in published.get(phenomenon, {}).values()]
        print(f"| {phenomenon or 'all'} | {' | '.join(cells)} |")


def bits(each: dict[str, Any]) -> str:
    """Bits per byte in each track, with the interval of the first."""
    cells = []
    for name in each["tracks"]:
        if name in each and each[name]["value"] is not None:
            score = each[name]
            low, high = score["low"] or math.nan, score["high"] or math.nan
            cells.append(f"{score['value']:.3f} [{low:.3f}, {high:.3f}]" + {"masks": " pseudo"}.get(name, ""))
    return "; ".join(cells)


def masked(each: dict[str, Any]) -> str:
    return f"{each['masks']['masked_accuracy']:.1%}" if "masks" in each else ""


def percent(estimate: list[float | None] | None) -> str:
    if estimate is None:
        return ""
    value, low, high = (math.nan if each is None else 100 * each for each in estimate)
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


def exponents(found: list[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    """The slope of log bits over log FLOPs of each system that has several budgets, in its first track."""
    for system in dict.fromkeys(each["system"] for each in found):
        own = [each for each in found if each["system"] == system and each["tracks"][0] in each and each["flops"]]
        if len(own) > 1:
            budgets = np.log([each["flops"] for each in own])
            yield system, float(np.polyfit(budgets, np.log([each[each["tracks"][0]]["value"] for each in own]), 1)[0])


if __name__ == "__main__":
    main()
