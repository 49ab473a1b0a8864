"""The model card of a run, with its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from lmlab.config import with_article
from lmlab.costs.countries import find_grid
from lmlab.costs.parameters import Parameters
from lmlab.models import find
from lmlab.models.descriptions import DESCRIPTIONS
from lmlab.objectives import TASKS
from lmlab.tokenizers.processors.joined import JoinedTokenizer
from lmlab.tokenizers.processors.sequences import SequenceTokenizer
from lmlab.training.energy_meter import Cost
from lmlab.training.progress import TrainingProgress
from lmlab.training.settings import TrainConfig
from lmlab.units import describe_units, main_unit

if TYPE_CHECKING:
    from lmlab.data.corpora.corpus import Corpus
    from lmlab.tokenizers import Tokenizer


LOSSY = "lossy: the tokenizer does not keep all of the text, so this figure is too good"
"""The note next to a score if the tokenizer loses part of the text."""


class Described(Protocol):
    """The parts of a recipe that the card shows."""

    @property
    def kind(self) -> str: ...

    @property
    def data(self) -> Any: ...

    @property
    def model(self) -> Mapping[str, Any]: ...

    @property
    def objective(self) -> Mapping[str, Any]: ...

    @property
    def train(self) -> TrainConfig: ...

    @property
    def origin(self) -> str | None: ...


def model_card(
    recipe: Described,
    corpus: Corpus,
    progress: TrainingProgress,
    *,
    parameters: Parameters,
    bits: float | None,
    codecarbon: str = "",
    commands: Sequence[str] = (),
    changes: Sequence[tuple[int, str]] = (),
) -> str:
    """The model card in Markdown: what the model is, its score, its cost and its settings.

    `commands` are examples of use, with {run} for the folder; `changes` are steps and the settings changed after them.
    """
    system = find(recipe.kind)
    does = DESCRIPTIONS[system.does[0]].does
    settings = "\n".join(f"| {name} | {value} |" for name, value in recipe.model.items())
    ended = {"budget": "until the budget was spent", "early": "until early stopping"}.get(progress.ended, "interrupted")
    quality = (
        describe_quality(progress, bits, corpus.processor)
        if recipe.data.kind != "examples"
        else describe_selection(corpus, progress)
    )
    verbs = " and ".join(f"`{each.replace('{run}', 'RUN')}`" for each in commands)
    use = f"Use it with {verbs}, or in Python with" if verbs else "Use it in Python with"
    on_text = recipe.objective["kind"] not in TASKS
    lossy = f" ({LOSSY})" if on_text and progress.best is not None and corpus.loses(corpus.valid) else ""
    learnt = describe_data(recipe, corpus, unit=main_unit(progress.units) if on_text else "training examples")
    checked = "".join(f"\n| data check | {line} |" for line in corpus.checked)
    trained = "It was trained with lmlab." if on_text else describe_task(recipe.objective, recipe.origin)
    changed = "".join(f"\n| changed after step {step:,} | {what} |" for step, what in changes)
    counted, article = recipe.kind == "ngram", with_article(recipe.kind).split()[0]
    train, read = recipe.train, describe_units(progress.units)
    how = f"counted once over {read}" if counted else f"{progress.step:,} steps, {read}"
    optimizer = f"\n| optimizer | {train.optimizer}, learning rate {train.rate:g}, {train.schedule} schedule |"
    return f"""# {recipe.kind}

This is {article} `{recipe.kind}` model: {system.summary} ({system.paper}). It {does}. {trained}

| | |
|---|---|
| validation | {quality}{lossy} |
| parameters | {parameters.total:,} |
{learnt}{checked}
| training | {how}, {ended} |

## Cost
| | |
|---|---|
{describe_cost(recipe, progress, parameters, codecarbon=codecarbon)}
## Settings
| setting | value |
|---|---|
{settings}
| budget | {train.budget} |{"" if counted else optimizer}
| seed | {train.seed} |{changed}

{use} `lmlab.load("RUN")`. RUN is the path of this folder.
"""


def describe_data(recipe: Described, corpus: Corpus, *, unit: str) -> str:
    """Rows of the table: the tokenizer, if there is one, and what the run learnt from; `unit` is what is counted."""
    named, train = ", ".join(recipe.data.named), corpus.train
    tokenizer: Tokenizer | SequenceTokenizer | None = corpus.tokenizer
    learnt = f"| data | {named}: {train.size:,} {unit} |"
    if corpus.sequence_tokenizer is not None:
        learnt, tokenizer = f"| data | {named}: {train.describe()} |", corpus.sequence_tokenizer
    elif tokenizer is not None and recipe.objective["kind"] not in TASKS and corpus.media is None:
        learnt = f"| text | {named}: {train.as_text().bytes:,} bytes, {train.size + 1:,} training tokens |"
    if tokenizer is None:
        return learnt
    return f"| tokenizer | {tokenizer.spec}, vocabulary of {tokenizer.vocabulary:,} tokens |\n{learnt}"


def describe_cost(recipe: Described, progress: TrainingProgress, parameters: Parameters, *, codecarbon: str) -> str:
    """Rows of the table of costs."""
    cost, grid = Cost(*progress.cost), find_grid(recipe.train.country)
    flops = "0: n-grams are counted" if recipe.kind == "ngram" else f"{progress.flops:.3g}"
    processors = f"{cost.cpu_seconds:,.1f} CPU s" + (f", {cost.gpu_seconds:,.1f} GPU s" if cost.gpu_seconds else "")
    sizes = f"{parameters.total:,}: {parameters.embedding:,} embedding, {parameters.non_embedding:,} other"
    grams = f"{grid.grams(cost.joules):.3g} g (at {grid.grams_per_kwh:g} g/kWh: {grid.name}, {grid.source})"
    rows = {
        "parameters": sizes,
        "training FLOPs": flops,
        "time": f"{cost.seconds:,.1f} s ({processors})",
        "energy": f"{cost.joules / 3600:.3g} Wh (method: {progress.energy_method})",
        "CO2e": grams,
        "codecarbon": codecarbon,
    }
    return "".join(f"| {name} | {value} |\n" for name, value in rows.items() if value)


def describe_task(task: Mapping[str, Any], origin: str | None) -> str:
    """A sentence about the task that a run was fine-tuned for."""
    labels = f" ({', '.join(task['labels'])})" if task["labels"] else ""
    begun = f" from `{origin}`" if origin and task["method"] != "scratch" else " from scratch" if origin else ""
    learnt = "fine-tuned" if origin or task["kind"] == "tagging" else "trained"
    return f"It was {learnt} with lmlab for {task['kind']}{labels}{begun} (`--how {task['method']}`)."


def describe_selection(corpus: Corpus, progress: TrainingProgress) -> str:
    """The result of a task on the examples that selected the checkpoint, if there were any."""
    if corpus.valid is None:
        return "none: the last checkpoint is kept; its score on held-out examples is in scores.json"
    return (
        f"{describe_quality(progress, None)}, on the {corpus.valid.size:,} examples that chose the checkpoint; the "
        "score on others is in scores.json"
    )


def describe_quality(progress: TrainingProgress, bits: float | None, processor: object = None) -> str:
    """The validation result in the unit that suits the objective and the data."""
    if isinstance(processor, JoinedTokenizer) and progress.best is not None:
        losses = {name: progress.best_metrics.get(f"{name}_loss") for name in processor.parts}
        each = [f"{name} {loss:.4f}" for name, loss in losses.items() if loss is not None]
        return f"nats per token: {', '.join(each)}"
    if isinstance(processor, SequenceTokenizer) and "nats" in progress.best_metrics:
        return processor.describe(progress.best_metrics["nats"])
    if bits is not None:
        return f"{bits:.4f} bits per byte"
    if progress.best is None:
        return "no validation data"
    metrics = "".join(f", {name.replace('_', ' ')} {value:.4g}" for name, value in progress.best_metrics.items())
    return f"{progress.best:.4f} nats per prediction (cross-entropy){metrics}"
