"""Multi30k, English to German: what attention, the Transformer, beam search, averaging and BART are worth.

    python benchmarks/multi30k.py [FOLDER] [--parts lstm transformer bart] [--lstm-budget 4epochs] …

About two hours on 2 cores; a second call goes on where the first stopped, and takes the runs and translations that it
finds. BLEU and chrF are sacrebleu's, on the raw, cased text of test 2016 (1,000 sentences).

- lstm: one recurrent encoder-decoder without attention and with each of three kinds, as many epochs for each.
- transformer: one small Transformer, decoded greedily, with beams, with a length penalty, and its checkpoints averaged.
- bart: a denoising BART pre-trained on the plain text of both languages, then taught with 2,000 pairs; against the same
  model that learns from these pairs alone, with as many epochs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

from lmlab import load
from lmlab.cli.console import progress_bar
from lmlab.language_model import LanguageModel
from lmlab.metrics.bleu import translation_metrics
from lmlab.runs.averaging import average
from lmlab.training.checkpointer import kept_checkpoints
from study import clock, need, trained

ATTENTIONS = ("none", "dot", "multiplicative", "additive")
PARTS = ("lstm", "transformer", "bart")
PENALTY = 0.6
HEADER = "| system | decoding | BLEU | chrF | training | translating |\n|---|---|---|---|---|---|"


def main() -> None:
    options = parse_arguments()
    need("multi30k")
    options.folder.mkdir(parents=True, exist_ok=True)
    study = Study(options.folder)
    for part in options.parts:
        {"lstm": recurrent, "transformer": transformer, "bart": bart}[part](study, options)
    print(f"\nMulti30k en-de, test 2016, {clock()}; {study.signature()}\n\n{HEADER}")
    for row in study.rows:
        print(row)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/multi30k"))
    parser.add_argument(
        "--parts", nargs="+", choices=("lstm", "transformer", "bart"), default=["lstm", "transformer", "bart"]
    )
    parser.add_argument("--lstm-budget", default="4epochs", help="of each of the four")
    parser.add_argument("--transformer-budget", default="14epochs")
    parser.add_argument("--pretraining-budget", default="9epochs")
    parser.add_argument("--pairs-budget", default="40epochs", help="of the models that learn from few pairs")
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--set", action="append", default=[], help="a further setting of all runs, GROUP.KEY=VALUE")
    return parser.parse_args()


class Study:
    """The test set, and a row of the table for each way to translate it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: list[str] = []
        data = Path(os.environ["LMLAB_DATA"], "multi30k")
        self.sources, self.references = (
            (data / f"test_2016_flickr.{language}").read_text(encoding="utf-8").splitlines()
            for language in ("en", "de")
        )
        self.bleu, self.chrf = translation_metrics().values()

    def add(
        self, name: str, lm: LanguageModel, path: Path, seconds: float, *, beams: int = 5, penalty: float = PENALTY
    ) -> None:
        """Translate the test set, unless an earlier call did, and note how well."""
        how = "greedy" if beams == 1 else f"beam {beams}" + (f", length penalty {penalty:g}" if penalty else "")
        kept = path / f"test-beam{beams}-penalty{penalty:g}.json"
        if kept.is_file():
            found = json.loads(kept.read_text(encoding="utf-8"))
        else:
            begin = time.perf_counter()
            with progress_bar(f"{name}, {how}") as progress:
                texts = lm.translate(self.sources, beams=beams, length_penalty=penalty, progress=progress)
            found = {"seconds": time.perf_counter() - begin, "texts": texts}
            kept.write_text(json.dumps(found, ensure_ascii=False, indent=1), encoding="utf-8")
        bleu, chrf = (metric.corpus_score(found["texts"], [self.references]).score for metric in (self.bleu, self.chrf))
        row = f"| {name} | {how} | {bleu:.2f} | {chrf:.2f} | {minutes(seconds)} | {found['seconds']:.1f} s |"
        print(row, flush=True)
        self.rows.append(row)

    def signature(self) -> str:
        return f"BLEU {self.bleu.get_signature()}, chrF {self.chrf.get_signature()}"


def recurrent(study: Study, options: Any) -> None:
    for attention in ATTENTIONS:
        path = study.folder / f"lstm-{attention}"
        settings = [f'model.attention="{attention}"', f"train.budget={options.lstm_budget}", *options.set]
        lm, _, seconds = trained("multi30k-seq2seq", path, *settings)
        name = "LSTM without attention" if attention == "none" else f"LSTM, {attention} attention"
        study.add(name, lm, path, seconds)


def transformer(study: Study, options: Any) -> None:
    path = study.folder / "transformer"
    lm, _, seconds = trained("multi30k-transformer", path, f"train.budget={options.transformer_budget}", *options.set)
    name = f"Transformer, {sum(p.numel() for p in lm.model.parameters()) / 1e6:.1f}M parameters"
    study.add(name, lm, path, seconds, beams=1, penalty=0.0)
    study.add(name, lm, path, seconds, penalty=0.0)
    study.add(name, lm, path, seconds)
    averaged, last = study.folder / "transformer-average", len(kept_checkpoints(path))
    if not averaged.is_dir():
        average(path, last=last, output=averaged)
    study.add(f"… last {last} checkpoints averaged", load(averaged), averaged, seconds)


def bart(study: Study, options: Any) -> None:
    few = study.folder / f"pairs-{options.pairs}.tsv"
    write_pairs(few, options.pairs)
    os.environ["LMLAB_PAIRS"] = str(few.resolve())
    origin = study.folder / "bart-pretrained"
    _, _, pretraining = trained(
        "multi30k-bart-pretraining", origin, f"train.budget={options.pretraining_budget}", *options.set
    )
    budget = f"train.budget={options.pairs_budget}"
    fine, alone = study.folder / f"bart-tuned-{options.pairs}", study.folder / f"bart-scratch-{options.pairs}"
    shape = json.loads((origin / "config.json").read_text(encoding="utf-8"))["model"]
    same = [f"model.{key}={shape[key]}" for key in ("width", "heads", "layers", "inner", "window")]
    same.append(f"tokenizer.spec={origin / 'tokenizer.json'}")
    lm, _, seconds = trained("multi30k-bart", alone, budget, *same, *options.set)
    study.add(f"BART from scratch on {options.pairs:,} pairs", lm, alone, seconds)
    lm, _, seconds = trained("multi30k-bart", fine, budget, *options.set, origin=origin)
    study.add(f"BART pre-trained ({minutes(pretraining)}), then the same pairs", lm, fine, seconds)


def write_pairs(path: Path, count: int) -> None:
    """The first pairs of the training text, as TSV."""
    data = Path(os.environ["LMLAB_DATA"], "multi30k")
    with (data / "train.en").open(encoding="utf-8") as sources, (data / "train.de").open(encoding="utf-8") as targets:
        lines = [f"{a.strip()}\t{b.strip()}\n" for a, b in itertools.islice(zip(sources, targets, strict=True), count)]
    path.write_text("".join(lines), encoding="utf-8")


def minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"


if __name__ == "__main__":
    main()
