"""Folders of Hugging Face `transformers` to runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from lmlab.config import build
from lmlab.interop.huggingface import weights
from lmlab.interop.huggingface.chat import import_chat
from lmlab.interop.huggingface.config import check_options, flatten, read_settings, write_settings
from lmlab.interop.huggingface.families import family_of_config, family_of_kind
from lmlab.interop.huggingface.files import read_weights
from lmlab.interop.huggingface.frames import find_frame, import_frame
from lmlab.interop.huggingface.heads import (
    expected_head,
    read_task,
    recall,
    with_head,
)
from lmlab.interop.huggingface.special_tokens import read_token_settings
from lmlab.interop.huggingface.table import Adapted, Architecture, Family, TaskHead
from lmlab.interop.huggingface.tokenizer import read_tokenizer, recall_tokenizer
from lmlab.interop.staging import EXPORT, staged
from lmlab.models import find, load_class
from lmlab.models.settings import ModelConfig, TokenModelConfig
from lmlab.runs.model_files import expected_tensors, load_weights, write_config
from lmlab.runs.storage import (
    HEADS,
    TASK,
    DamagedError,
    read_json,
    read_tensors,
    write_json,
    write_manifest,
    write_tensors,
)
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame
from lmlab.tokenizers.processors import FILE as PROCESSOR

if TYPE_CHECKING:
    from lmlab.models.model import Model

OURS, KEPT = EXPORT, "lmlab.safetensors"


class Checkpoint(NamedTuple):
    """A network in our terms, and what it has learnt besides."""

    kind: str
    config: ModelConfig
    tensors: Mapping[str, Tensor]
    learnt: Learnt | None = None


class Learnt(NamedTuple):
    """A task with its head."""

    task: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def import_run(folder: Path, run: Path, *, tokenizer: Tokenizer | None = None, overwrite: bool = False) -> None:
    """Make a run directory of a folder of theirs; `tokenizer` replaces that of the folder."""
    with staged(run, overwrite=overwrite) as new:
        checkpoint = read_checkpoint(folder)
        family = family_of_kind(checkpoint.kind, checkpoint.config.model_dump())
        write_tensors(new / "model.safetensors", checkpoint.tensors)
        write_config(new, checkpoint.kind, checkpoint.config.model_dump())
        task = None if checkpoint.learnt is None else dict(checkpoint.learnt.task)
        if family.tokenized:
            task = _import_tokens(folder, new, checkpoint, family, tokenizer, task)
        elif tokenizer is not None:
            raise ValueError(f"{folder} reads no text: leave out --tokenizer")
        if family.files is not None:
            family.files.read_processor(folder, checkpoint.config).save(new / PROCESSOR)
        if task is not None and checkpoint.learnt is not None:
            write_json(new / TASK, task)
            write_tensors(new / HEADS, checkpoint.learnt.tensors)
        write_manifest(new)


def _import_tokens(
    folder: Path,
    new: Path,
    checkpoint: Checkpoint,
    family: Family,
    given: Tokenizer | None,
    task: Mapping[str, Any] | None,
) -> dict[str, Any] | None:
    """Write tokenizer, frame and chat template of a folder of theirs; return the task with the frame of its texts."""
    ours = _ours(folder) if given is None else {}
    theirs = read_tokenizer(folder, family) if given is None else given
    tokenizer = recall_tokenizer(theirs, ours) if ours else theirs
    assert isinstance(checkpoint.config, TokenModelConfig)
    check_fit(tokenizer, checkpoint.config.vocabulary, unnamed=family.unnamed, where=str(folder))
    tokenizer.save(new / "tokenizer.json")
    if (frame := _frame_of(folder, ours, tokenizer, checkpoint)) is not None:
        frame.save(new)
    import_chat(folder, new)
    if task is None or "frame" in task:
        return None if task is None else dict(task)
    check_start(theirs, checkpoint.config, where=str(folder))
    found = find_frame(theirs, find(checkpoint.kind))
    return {**task, "frame": found, "window": getattr(checkpoint.config, "window", None)}


def _frame_of(folder: Path, ours: Mapping[str, Any], tokenizer: Tokenizer, checkpoint: Checkpoint) -> Frame | None:
    """The frame of an imported model; None if its class defines it."""
    if not ours:
        family, settings = family_of_kind(checkpoint.kind, checkpoint.config.model_dump()), read_token_settings(folder)
        if family.files is not None:
            return family.files.read_frame(folder, tokenizer, checkpoint.config)
        settings |= {} if family.boundary is None else {"bos_token": family.boundary}
        return import_frame(tokenizer, find(checkpoint.kind), checkpoint.config, settings)
    if "frame" not in ours:  # the boundary, as lmlab's own models read it
        return None
    try:
        return Frame.from_content(ours["frame"])
    except (TypeError, AttributeError, ValueError) as error:
        raise DamagedError(f"{folder / OURS} is damaged: frame: {error}; remove it to read the rest") from None


def read_model(folder: Path) -> Model:
    """The network in a folder of theirs, ready for use; its tokenizer is not looked at."""
    checkpoint = read_checkpoint(folder)
    model: Model = load_class(checkpoint.kind)(checkpoint.config)
    load_weights(model, checkpoint.tensors, source=folder)
    return model.eval()


def read_checkpoint(folder: Path) -> Checkpoint:
    """Configuration and weights of a folder of theirs, in our terms; a ValueError says what does not fit."""
    main, ours = _read_folder(folder)
    if "whole" not in ours:
        return main
    config = build(load_class(main.kind).Config, ours["whole"], where=str(folder / OURS))
    if main.learnt is not None:
        return _complete(main, config, folder)
    others = [name for name in family_of_kind(main.kind, config.model_dump()).folders(config.model_dump()) if name]
    missing = [name for name in others if not (folder / name / "config.json").is_file()]
    if missing:
        warnings.warn(f"{folder} has lost its folder {missing[0]}: only the rest of the model is read", stacklevel=3)
        return main
    tensors = dict(main.tensors)
    for name in others:
        tensors |= _read_folder(folder / name)[0].tensors
    return Checkpoint(main.kind, config, {name: tensors[name] for name in expected_tensors(main.kind, config)})


def _complete(main: Checkpoint, config: ModelConfig, folder: Path) -> Checkpoint:
    """A model for a task together with its pre-training heads, which the Hugging Face class does not have."""
    expected = expected_tensors(main.kind, config)
    tensors = {**_kept(folder), **main.tensors}
    if missing := [name for name in expected if name not in tensors]:
        message = f"the heads of pre-training are left out: {missing[0]} is not there"
        warnings.warn(f"{folder / KEPT} does not hold all that it had, so {message}", stacklevel=4)
        return main
    return main._replace(config=config, tensors={name: tensors[name] for name in expected})


def _read_folder(folder: Path) -> tuple[Checkpoint, Mapping[str, Any]]:
    """One model of theirs, and what we remember of it."""
    where = str(folder / "config.json")
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} is neither a run nor a Hugging Face folder: it has no config.json")
    theirs = read_json(folder / "config.json")
    if not isinstance(theirs, dict):
        raise DamagedError(f"{where} is damaged: it is not a table of settings")
    family, architecture = family_of_config(theirs, where=where)
    theirs = family.unify(flatten(family, theirs))
    head = architecture if isinstance(architecture, TaskHead) else None
    values = read_settings(family, theirs, where=where)
    values |= {} if family.files is None else family.files.read_settings(folder, theirs)
    kind = family.kind
    build(load_class(kind).Config, values, where=where)
    table = family if head is None else with_head(family, head)
    check_options(table, theirs, where=where)
    tensors = read_weights(folder)
    if architecture is not None:
        values |= family.bare if isinstance(architecture, TaskHead) else architecture.lacks
    values |= _parts(family, architecture, tensors)
    ours = _ours_of(folder, family, theirs)
    if ours:
        kind, values = ours["kind"], ours["model"]
    config = build(load_class(kind).Config, values, where=where)
    expected = expected_tensors(kind, config)
    task = {} if head is None else read_task(head, theirs, dropout=values.get("dropout", 0.0), where=where)
    wanted = {} if head is None else expected_head(head, task, width=_width(family, theirs))
    found = weights.read(table, tensors, {**expected, **wanted}, where=str(folder))
    if family.adaptation is not None and ours.get("adaptation"):
        values, found = family.adaptation.read(Adapted(config.model_dump(), found, ours["adaptation"]))
        config = build(load_class(kind).Config, values, where=where)
    if head is None:
        return Checkpoint(kind, config, found), ours
    task, found = recall(head, task, found, known=ours.get("task"), kept=_kept(folder), layers=values["layers"])
    learnt = Learnt(task, {name: tensor for name, tensor in found.items() if name not in expected})
    return Checkpoint(kind, config, {name: found[name] for name in expected}, learnt), ours


def _width(family: Family, theirs: Mapping[str, Any]) -> int:
    return int(theirs[next(setting.theirs for setting in family.settings if setting.ours == "width")])


def check_fit(tokenizer: Tokenizer, rows: int, *, unnamed: int = 256, where: str) -> None:
    """A ValueError where a tokenizer has more tokens than a model; fewer are usual, many fewer are worth a warning."""
    if tokenizer.vocabulary > rows:
        message = f"the tokenizer of {where} has {tokenizer.vocabulary} tokens, but the model only {rows}"
        if tokenizer.vocabulary == rows + 1 and tokenizer.boundary == rows:
            raise ValueError(
                f"{message}: the last is {tokenizer.show(rows)!r}, which lmlab adds because none of the others stands "
                f"between documents. Give the model a row for it in transformers (resize_token_embeddings), or another "
                f"--tokenizer"
            )
        raise ValueError(f"{message}: it belongs to another model; give the right one with --tokenizer")
    if rows - tokenizer.vocabulary > unnamed:
        warnings.warn(
            f"the model of {where} has {rows} tokens, but the tokenizer only {tokenizer.vocabulary}: "
            f"perhaps it belongs to another model",
            stacklevel=3,
        )


def check_start(tokenizer: Tokenizer, config: ModelConfig, *, where: str) -> None:
    """A ValueError where a decoder begins with another token than tasks begin with."""
    start = getattr(config, "start", None)
    if start is not None and start != tokenizer.boundary:
        raise ValueError(
            f"{where}: decoder_start_token_id = {start} is not supported for tasks: lmlab begins with "
            f"{tokenizer.show(tokenizer.boundary)}, {tokenizer.boundary}"
        )


def _parts(
    family: Family, architecture: Architecture | TaskHead | None, tensors: Mapping[str, Tensor]
) -> dict[str, Any]:
    """The settings that depend on what the checkpoint holds; what its architecture promises is taken as there."""
    promised = architecture.when if isinstance(architecture, Architecture) else {}
    taken = (
        {name for row in architecture.weights for name in row.their_names} if isinstance(architecture, TaskHead) else ()
    )
    names = weights.their_names(family, tensors)
    values = {}
    for part in family.parts:
        keys = (part.theirs,) if isinstance(part.theirs, str) else part.theirs
        found = [tensors[names[key]] for key in keys if key in names and key not in taken]
        there = any(not part.nonzero or bool(tensor.any()) for tensor in found)
        there = there or promised.get(part.ours) == part.present
        values[part.ours] = part.present if there else part.absent
    return values


def _ours(folder: Path) -> dict[str, Any]:
    """The settings that lmlab added to an exported folder, if there are any."""
    if not (folder / OURS).is_file():
        return {}
    ours = read_json(folder / OURS)
    tables = ("model", "whole", "tokenizer", "tokenizer_options", "frame", "adaptation", "task", "processor")
    if not isinstance(ours, dict) or not {"kind", "model"} <= ours.keys():
        raise DamagedError(f"{folder / OURS} is damaged: it names no kind and settings; remove it to read the rest")
    if wrong := [name for name in tables if not isinstance(ours.get(name, {}), dict)]:
        raise DamagedError(f"{folder / OURS} is damaged: {wrong[0]} is not a table; remove it to read the rest")
    return ours


def _kept(folder: Path) -> dict[str, Tensor]:
    """The tensors of a run that the Hugging Face class for the task does not have."""
    return read_tensors(folder / KEPT) if (folder / KEPT).is_file() else {}


def _ours_of(folder: Path, family: Family, theirs: Mapping[str, Any]) -> dict[str, Any]:
    """The same, unless their configuration has been changed since."""
    ours = _ours(folder)
    if not ours:
        return {}
    where, kind = folder / OURS, ours["kind"]
    config = build(load_class(kind).Config, ours["model"], where=str(where)).model_dump()
    known = kind == family.kind or kind in family.also
    if known and all(theirs.get(name) == value for name, value in write_settings(family, config).items()):
        return ours
    warnings.warn(f"{where} is left out: it belongs to another config.json", stacklevel=4)
    return {}
