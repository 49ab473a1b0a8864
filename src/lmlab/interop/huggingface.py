"""Models to and from the folders of Hugging Face `transformers`, which is not needed for it.

A folder has `config.json`, safetensors and a tokenizer. Their meaning is in one table per family, in
`lmlab.interop.families`, and is read in both directions. A folder that we write has besides an `lmlab.json` with what
theirs cannot say, so that a run comes back bit by bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from lmlab import __version__
from lmlab.config import build
from lmlab.interop import hf_weights
from lmlab.interop.families import family_of_config, family_of_kind
from lmlab.interop.hf_chat import export_chat, import_chat
from lmlab.interop.hf_config import check_options, flatten, nest, read_settings, write_settings
from lmlab.interop.hf_files import read_weights, write_weights
from lmlab.interop.hf_frames import find_frame, import_frame, split_template
from lmlab.interop.hf_heads import (
    expected_head,
    find_head,
    fold,
    read_task,
    recall,
    with_head,
    write_head_config,
)
from lmlab.interop.hf_special_tokens import read_token_settings
from lmlab.interop.hf_table import Adapted, Architecture, Family, Head
from lmlab.interop.hf_tokenizer import find_role, read_tokenizer, recall_tokenizer, write_tokenizer
from lmlab.interop.staging import EXPORT, staged
from lmlab.models import find, load_class
from lmlab.models.settings import ModelConfig, TokenModelConfig
from lmlab.runs.model_files import expected_tensors, load_frame, load_model, load_weights, read_heads, write_config
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
from lmlab.runs.upgrade import upgrade_task
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import FILE, Frame
from lmlab.tokenizers.processors import FILE as PROCESSOR
from lmlab.tokenizers.processors import load_processor

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


def export_run(run: Path, folder: Path, *, overwrite: bool = False) -> None:
    """Write the model and tokenizer of a run as a folder of theirs."""
    with staged(folder, overwrite=overwrite) as new:
        model, tokenizer = load_model(run)
        kind = read_json(run / "config.json")["kind"]
        files = family_of_kind(kind, model.config.model_dump()).files
        processor = load_processor(run)
        if files is not None and processor is None:
            raise ValueError(f"{run} has no {PROCESSOR}, which says how its recordings or pictures are read")
        if tokenizer is None and files is None:
            raise ValueError(f"{run} has no tokenizer.json, so it cannot be written as a folder of transformers")
        frame = None if tokenizer is None else load_frame(run, model, tokenizer)
        if frame is not None and frame.backwards:
            raise ValueError(
                f"{run} was trained on sources from their last token to the first, which transformers cannot express"
            )
        learnt = Learnt(upgrade_task(read_json(run / TASK)), read_heads(run)) if (run / TASK).is_file() else None
        write_checkpoint(model, kind, tokenizer, new, learnt=learnt, frame=frame if (run / FILE).is_file() else None)
        if files is not None:
            files.write(new, model.config, tokenizer, frame, processor)
        if tokenizer is not None:
            export_chat(run, new, tokenizer)


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
    head = architecture if isinstance(architecture, Head) else None
    values = read_settings(family, theirs, where=where)
    values |= {} if family.files is None else family.files.read_settings(folder, theirs)
    kind = family.kind
    build(load_class(kind).Config, values, where=where)
    table = family if head is None else with_head(family, head)
    check_options(table, theirs, where=where)
    tensors = read_weights(folder)
    if architecture is not None:
        values |= family.bare if isinstance(architecture, Head) else architecture.lacks
    values |= _parts(family, architecture, tensors)
    ours = _ours_of(folder, family, theirs)
    if ours:
        kind, values = ours["kind"], ours["model"]
    config = build(load_class(kind).Config, values, where=where)
    expected = expected_tensors(kind, config)
    task = {} if head is None else read_task(head, theirs, dropout=values.get("dropout", 0.0), where=where)
    wanted = {} if head is None else expected_head(head, task, width=_width(family, theirs))
    found = hf_weights.read(table, tensors, {**expected, **wanted}, where=str(folder))
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


class Export(NamedTuple):
    """What one folder of theirs is to hold, in our terms."""

    table: Family
    kind: str
    values: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    window: int | None
    remembered: Mapping[str, Any]
    head: Head | None = None


def write_checkpoint(
    model: Model,
    kind: str,
    tokenizer: Tokenizer | None,
    folder: Path,
    *,
    learnt: Learnt | None = None,
    frame: Frame | None = None,
) -> None:
    """Write a network, with its tokenizer if it reads text, into an empty folder for `transformers` to open.

    `frame` is what a run keeps in its `frame.json`.
    """
    whole = model.config.model_dump()
    family = family_of_kind(kind, whole)
    state = model.state_dict()
    head = None if learnt is None else find_head(family, learnt.task)
    folders = family.folders(whole)
    if head is not None:
        folders = {"": {**folders[""], **family.bare}}
    for name, change in folders.items():
        values = {**whole, **change}
        names = expected_tensors(kind, build(type(model.config), values, where="model"))
        tensors = {name: state[name].detach().cpu() for name in names}
        remembered: dict[str, Any] = {"whole": whole} if not name and values != whole else {}
        remembered |= {} if frame is None else {"frame": asdict(frame)}
        export = Export(family, kind, values, tensors, model.window, remembered)
        (folder / name).mkdir(exist_ok=True)
        if head is not None and learnt is not None:
            rest = [name for name in expected_tensors(kind, model.config) if name not in names]
            export, kept = _with_task(export, head, learnt)
            kept |= {name: state[name].detach().cpu() for name in rest}
            if kept:
                write_tensors(folder / KEPT, kept)
        _write_folder(export, tokenizer, folder / name)


def _with_task(export: Export, head: Head, learnt: Learnt) -> tuple[Export, dict[str, Tensor]]:
    """A body with the head of a task, and the tensors of ours that are not, or not so, in their class."""
    both = {**export.tensors, **learnt.tensors}
    written = {**both, **fold(head, learnt.task, both, layers=export.values["layers"])}
    table = with_head(export.table, head)
    theirs = {*export.tensors, *expected_head(head, learnt.task, width=1)}
    kept = {name: both[name] for name in both if name not in theirs or written[name] is not both[name]}
    tensors = {name: tensor for name, tensor in written.items() if name in theirs}
    remembered = {**export.remembered, "task": learnt.task}
    return export._replace(table=table, tensors=tensors, head=head, remembered=remembered), kept


def _write_folder(export: Export, tokenizer: Tokenizer | None, folder: Path) -> None:
    table, head = export.table, export.head
    adapted = Adapted(export.values, export.tensors, None)
    if table.adaptation is not None and tokenizer is not None:
        adapted = table.adaptation.write(*adapted[:2], pad=find_role(tokenizer, "pad"))
    architecture = _architecture(table, adapted.values) if head is None else Architecture(head.name)
    config = {**write_settings(table, adapted.values), "architectures": [architecture.name], "dtype": "float32"}
    if head is not None:
        config = {**write_head_config(head, export.remembered["task"]), **config}
    write_weights(folder, hf_weights.write(table, adapted.tensors, prefixed=architecture.prefixed))
    remembered = {"kind": export.kind, "version": __version__, "model": dict(adapted.values), **export.remembered}
    remembered |= {"adaptation": adapted.undo} if adapted.undo else {}
    if tokenizer is not None:
        opening = _opening(export, tokenizer)
        config |= {name: token for name, token in _token_ids(table, tokenizer, opening).items() if name not in config}
        remembered |= _write_tokens(export, tokenizer, folder, adapted.values, opening)
    write_json(folder / "config.json", nest(table, config))
    write_json(folder / OURS, remembered)


def _write_tokens(
    export: Export, tokenizer: Tokenizer, folder: Path, values: Mapping[str, Any], opening: int
) -> dict[str, Any]:
    """Write the tokenizer of a folder of theirs; return what of ours it cannot say."""
    table, head, frame = export.table, export.head, None
    if head is not None:
        task = export.remembered["task"]
        segments = ":1" in " ".join(table.template) and values.get("segments", 2) > 1
        frame = split_template(next(iter(task["frame"].values())), segments=segments)
        if head.shifted and find_role(tokenizer, frame[0].split()[-1]) != tokenizer.boundary:
            raise ValueError(f"{head.name} reads the boundary at the end of a text, and {task['frame']} has none there")
    undo = write_tokenizer(tokenizer, folder, table, window=export.window, frame=frame, opening=opening)
    remembered: dict[str, Any] = {"tokenizer": undo} if undo else {}
    return remembered | ({"tokenizer_options": options} if (options := tokenizer.options) else {})


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


def _parts(family: Family, architecture: Architecture | Head | None, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The settings that depend on what the checkpoint holds; what its architecture promises is taken as there."""
    promised = architecture.when if isinstance(architecture, Architecture) else {}
    taken = {name for row in architecture.weights for name in row.their_names} if isinstance(architecture, Head) else ()
    names = hf_weights.their_names(family, tensors)
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


def _architecture(family: Family, values: Mapping[str, Any]) -> Architecture:
    for architecture in family.architectures:
        if all(values[name] == value for name, value in architecture.when.items()):
            return architecture
    given = {name: values[name] for known in family.architectures for name in known.when}
    raise ValueError(
        f"transformers has no {family.model_type} with {', '.join(f'{k} = {v!r}' for k, v in given.items())}; it has: "
        + "; ".join(f"{known.name} with {dict(known.when)}" for known in family.architectures)
    )


def _opening(export: Export, tokenizer: Tokenizer) -> int:
    """The token with which texts begin: the boundary, or another that an imported model has for it."""
    frame = export.remembered.get("frame", {})
    found = frame.get("specials", {}).get("tokens", {}).get("boundary") if "source" not in frame else None
    return tokenizer.boundary if found is None else int(found)


def _token_ids(family: Family, tokenizer: Tokenizer, opening: int) -> dict[str, int | None]:
    """The tokens that `transformers` must know by number when it generates or pads."""
    pad = find_role(tokenizer, "pad")
    ids: dict[str, int | None] = {"pad_token_id": tokenizer.boundary if pad is None and family.fills_up else pad}
    if "cls" not in " ".join(family.template):
        ids |= {"bos_token_id": opening, "eos_token_id": tokenizer.boundary}
    if "boundary" in " ".join(family.template):
        ids |= dict.fromkeys(("decoder_start_token_id", "forced_eos_token_id"), tokenizer.boundary)
    return ids
