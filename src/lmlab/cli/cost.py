"""lmlab cost: what training a model would take, before anything is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmlab.cli.options import Country, Json, Settings, Size

if TYPE_CHECKING:
    from lmlab.costs.design import Design
    from lmlab.costs.estimate import CostEstimate, MemoryEstimate
    from lmlab.training.settings import TrainConfig


def cost(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model (see: lmlab list), or gpt3.")],
    size: Size = None,
    budget: Annotated[
        str | None, typer.Option(help="Tokens to train on: 5Mtokens, 300Btokens … (default: as published)")
    ] = None,
    settings: Settings = None,
    vocabulary: Annotated[int | None, typer.Option(help="Vocabulary size. (default: as published)")] = None,
    hardware: Annotated[
        str | None, typer.Option(help="a100, a100x8, h100x1024 …; 'this' measures this machine.")
    ] = None,
    utilisation: Annotated[float | None, typer.Option(help="Fraction of peak FLOPs reached. (default: 0.4)")] = None,
    country: Country = None,
    price_per_hour: Annotated[float | None, typer.Option(help="US dollars per device and hour.")] = None,
    json_: Json = False,
) -> None:
    """Estimate the cost of training, without training.

    It shows parameters, FLOPs, memory, time, energy, CO2e and money.

    Examples:

      lmlab cost gpt2 --size 124M --budget 10Btokens --hardware a100x8 --country SE

      lmlab cost gpt3

      lmlab cost lstm --budget 5Mtokens --hardware this

    Values that are not given are those that were published with the model, or else: 20 tokens per parameter, the
    default tokenizer's vocabulary, the training batch, a100 and its list price. Of an encoder-decoder, the budget
    counts pairs of a source and a target token (that of lmlab train counts both).
    """
    import json

    from lmlab.costs.countries import find_grid
    from lmlab.costs.estimate import estimate, parse_count
    from lmlab.costs.hardware import THIS

    find_grid(country)
    wanted = parse_count(budget) if budget is not None else None
    if vocabulary is not None and vocabulary < 2:
        raise ValueError(f"--vocabulary {vocabulary}: give at least 2 token types")
    measured = hardware is not None and hardware.strip().lower() == THIS
    design, train = _design(model, size, settings or [], vocabulary, measured=measured)
    moments = train.moments
    speed, rows = None, train.batch
    if measured:
        if utilisation is not None:
            raise ValueError("--utilisation is measured with --hardware this; omit it")
        speed, rows = _measure(design, train, moments)
    result = estimate(
        design,
        tokens=wanted,
        batch=train.batch,
        hardware=hardware if speed is None else None,
        speed=speed,
        utilisation=utilisation,
        country=country,
        price_per_hour=price_per_hour,
        moments=moments,
        validation_tokens=float(train.evaluations * train.evaluation_tokens) if speed is not None else 0.0,
    )
    if json_:
        print(json.dumps(result.as_dict() | ({"trial_batch": rows} if speed is not None else {})))
    else:
        _print(result, rows if speed is not None else None)


def _design(
    name: str, size: str | None, settings: list[str], vocabulary: int | None, *, measured: bool
) -> tuple[Design, TrainConfig]:
    """The design, and the settings of its training."""
    from lmlab.config import apply_settings, build, suggest
    from lmlab.costs.design import describe
    from lmlab.models import LINEAGE
    from lmlab.training.settings import TrainConfig

    groups = apply_settings({}, settings)
    for group in groups:
        if group not in ("model", "train"):
            raise ValueError(f"unknown group of settings {group!r}{suggest(group, ('model', 'train'))}")
    _check_settings(groups, vocabulary=vocabulary, measured=measured)
    defaults = LINEAGE[name].training if name in LINEAGE else {"batch": 8}
    values = {**defaults, **groups.get("train", {})}
    train = build(TrainConfig, values, where="train")
    return describe(
        name, size=size, settings=groups.get("model", {}), vocabulary=vocabulary, window=train.window
    ), train


ON_PAPER = ("batch", "window", "optimizer", "momentum")
"""The settings of training that an estimate depends on."""
IN_A_TRIAL = (
    "seed",
    "accumulate",
    "order",
    "clip",
    "precision",
    "compile",
    "device",
    "evaluations",
    "evaluation_tokens",
)
"""Those that matter besides where training is tried on this machine."""


def _check_settings(groups: dict[str, Any], *, vocabulary: int | None, measured: bool) -> None:
    """A ValueError for a setting that would change nothing, so that nobody believes it did."""
    from lmlab.config import suggest
    from lmlab.training.settings import TrainConfig

    train, used = groups.get("train", {}), ON_PAPER + (IN_A_TRIAL if measured else ())
    for name in train:
        if name not in TrainConfig.model_fields:
            raise ValueError(f"unknown setting train.{name}{suggest(name, used)}")
        if name not in used:
            instead = {"budget": "; give --budget", "country": "; give --country"}.get(name, "")
            where = "; it does with --hardware this" if name in IN_A_TRIAL else ""
            raise ValueError(f"train.{name} does not change the estimate, so it is not taken{instead}{where}")
    if "momentum" in train and train.get("optimizer") != "sgd":
        raise ValueError("train.momentum is only for train.optimizer=sgd; omit it")
    if vocabulary is not None and "vocabulary" in groups.get("model", {}):
        raise ValueError("--vocabulary and --set model.vocabulary are the same setting: give one of them")


def _measure(design: Design, train: TrainConfig, moments: int) -> tuple[Any, int]:
    """Train the model for some seconds on this machine."""
    import torch

    from lmlab.cli.console import progress_bar
    from lmlab.costs.benchmark import affordable_rows, machine_memory, matrix_rate, measure_speed
    from lmlab.models import create
    from lmlab.training.devices import choose_device

    if design.settings is None:
        raise ValueError(f"{design.name} has no file, so it cannot be tried here; give other --hardware, such as a100")
    device = choose_device(train.device)
    affordable_rows(
        design, wanted=1, peak=matrix_rate(device, repetitions=1), memory=machine_memory(device), moments=moments
    )
    torch.manual_seed(train.seed)
    with progress_bar("measuring this machine"):
        model = create(design.name, design.settings, size=design.size).to(device)
        return measure_speed(model, design, train, moments=moments)


def _print(result: CostEstimate, trial_rows: int | None) -> None:
    from rich.table import Table

    from lmlab.cli.console import Console

    design, published = result.design, result.design.published
    console = Console(highlight=False)
    table = Table(
        title=f"{design.name} {design.size}: what training would take", show_header=False, title_justify="left"
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    for row in _model_rows(result):
        table.add_row(*row)
    table.add_section()
    for row in _price_rows(result, trial_rows):
        table.add_row(*row)
    console.print(table)
    console.print(_memory_table(result))
    console.print(_exchange_table(result))
    if published is not None:
        console.print(f"Published: {_published(result)}", soft_wrap=True)
    for line in _footnotes(result):
        console.print(line, style="dim", soft_wrap=True)
    console.print("All assumptions are in docs/guides/costs.md; --json gives all figures.", style="dim")


def _model_rows(result: CostEstimate) -> list[tuple[str, str, str]]:
    design = result.design
    parameters = design.parameters
    pairs = "" if design.unit == "token" else f"; one is a {design.unit}"
    extra = f"and {design.pretraining_only:,} that only pre-training needs" if design.pretraining_only else ""
    rows = [
        ("parameters", f"{parameters.total:,}", design.basis),
        ("  embedding", f"{parameters.embedding:,}", f"vocabulary {design.vocabulary:,}" if design.vocabulary else ""),
        ("  other", f"{parameters.non_embedding:,}", extra),
        ("tokens", f"{result.tokens:.3g}", result.tokens_from + pairs),
        (
            "forward",
            f"{_scaled(design.forward_flops, 'FLOPs')}",
            f"per {design.unit.split()[0]}, in rows of {design.mean_window}",
        ),
        ("training", f"{result.training_flops:.3g} FLOPs", result.flops_from),
    ]
    if result.training_flops != result.counted_flops:
        rows.append(("  counted", f"{result.counted_flops:.3g} FLOPs", "3 x forward x tokens: what is really computed"))
    return rows


def _price_rows(result: CostEstimate, trial_rows: int | None) -> list[tuple[str, str, str]]:
    peak = f"peak {_scaled(result.peak, 'FLOP/s')} each, {result.utilisation:.1%} of it {result.utilisation_from}"
    if trial_rows is not None:
        peak = f"{result.utilisation:.0%} of a matrix product's {_scaled(result.peak, 'FLOP/s')}; {trial_rows} rows"
    dollars = result.dollars
    price = f"{result.price_per_hour:g} US dollars per device and hour" if result.price_per_hour is not None else ""
    return [
        ("hardware", result.hardware if len(result.hardware) < 20 else "this machine", peak),
        ("time", _duration(result.seconds), _time_from(result)),
        ("energy", _scaled(result.joules / 3600, "Wh"), result.energy_from),
        (
            "CO2e",
            _grams(result.grams),
            f"{result.grid.grams_per_kwh:g} g/kWh: {result.grid.name}, {result.grid.source}",
        ),
        ("money", f"${_readable(dollars)}" if dollars is not None else "?", price or "give --price-per-hour"),
    ]


def _footnotes(result: CostEstimate) -> list[str]:
    """Where the hardware's figures are from, and which of them are from nowhere."""
    lines = [f"Hardware: {result.hardware_from}."]
    if result.price_from:
        lines.append(f"Price: {result.price_from}{'; no quotation' if result.price_from != 'given' else ''}.")
    if result.assumptions:
        lines.append(f"Without a source: {result.assumptions}.")
    return lines


def _time_from(result: CostEstimate) -> str:
    if not result.validation_seconds:
        return f"{_readable(result.seconds / 3600 * result.devices)} device hours"
    training = _duration(result.seconds - result.validation_seconds)
    return f"{training} of training, up to {_duration(result.validation_seconds)} of validation"


def _memory_table(result: CostEstimate) -> Any:
    from rich.table import Table

    rows = f"{result.batch} row{'s' if result.batch != 1 else ''} of {result.design.window} tokens"
    where = "one device" if result.devices == 1 else f"each of {result.devices:,} devices"
    table = Table(
        "memory per device", "weights", "gradients", "optimizer", "activations", "total",
        f"fits {result.device_memory / 1e9:.0f} GB", title_justify="left",
        title=f"{rows} on {where}",
    )  # fmt: skip
    for name, memory in result.memory.items():
        fits = "[green]yes[/green]" if memory.total <= result.device_memory else "[red]no[/red]"
        table.add_row(_STRATEGIES[name], *map(_bytes, _parts(memory)), fits)
    return table


def _exchange_table(result: CostEstimate) -> Any:
    from rich.table import Table

    from lmlab.costs.communication import BETWEEN, NODE, WITHIN

    table = Table(
        "several devices", "sent per step", "time", "efficiency", title_justify="left",
        title=f"{result.batch} rows on each device; {WITHIN / 1e9:.0f} GB/s among {NODE}, {BETWEEN / 1e9:.0f} GB/s "
        "between machines (assumed)",
    )  # fmt: skip
    for each in result.exchanges:
        name = f"{each.devices:,} with {_STRATEGIES[each.strategy]}"
        efficiency = f"{each.efficiency:.0%} to {each.overlapped:.0%}"
        table.add_row(name, _bytes(each.sent), f"{each.seconds:.3g} s", efficiency)
    return table


_STRATEGIES = {"single": "single", "ddp": "DDP", "fsdp": "FSDP"}


def _parts(memory: MemoryEstimate) -> list[float]:
    return [*memory, memory.total]


def _published(result: CostEstimate) -> str:
    published = result.design.published
    assert published is not None
    parts = []
    if published.parameters is not None:
        million = published.parameters < 1e9
        parts.append(f"{published.parameters / (1e6 if million else 1e9):.4g}{'M' if million else 'B'} parameters")
    if published.flops is not None:
        parts.append(f"{published.flops:.3g} training FLOPs")
    if published.hardware is not None and published.hours is not None:
        parts.append(f"{_duration(3600 * published.hours)} on {published.hardware}")
    return f"{', '.join(parts) or f'a vocabulary of {published.vocabulary:,}'} ({published.source})"


def _scaled(value: float, unit: str) -> str:
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}" if value < 1e18 else f"{value:.3g} {unit}"
    return f"{value:.3g} {unit}"


def _bytes(value: float) -> str:
    return f"{value / 1e9:,.2f} GB" if value >= 1e8 else f"{value / 1e6:,.1f} MB"


def _grams(value: float) -> str:
    return f"{value / 1e6:,.3g} t" if value >= 1e6 else f"{value / 1e3:.3g} kg" if value >= 1e3 else f"{value:.3g} g"


def _duration(seconds: float) -> str:
    for factor, unit in ((365.25 * 86400, "years"), (86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= factor * (1.5 if unit != "years" else 2):
            return f"{seconds / factor:,.3g} {unit}"
    return f"{seconds:.3g} seconds"


def _readable(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
