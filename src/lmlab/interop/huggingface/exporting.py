"""Runs to folders of Hugging Face `transformers`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from lmlab import __version__
from lmlab.config import build
from lmlab.interop.huggingface import weights
from lmlab.interop.huggingface.chat import export_chat
from lmlab.interop.huggingface.config import nest, write_settings
from lmlab.interop.huggingface.families import family_of_kind
from lmlab.interop.huggingface.files import write_weights
from lmlab.interop.huggingface.frames import split_template
from lmlab.interop.huggingface.heads import (
    expected_head,
    find_head,
    fold,
    with_head,
    write_head_config,
)
from lmlab.interop.huggingface.importing import KEPT, OURS, Learnt
from lmlab.interop.huggingface.table import Adapted, Architecture, Family, TaskHead
from lmlab.interop.huggingface.tokenizer import find_role, write_tokenizer
from lmlab.interop.staging import staged
from lmlab.models.model import Model
from lmlab.runs.model_files import expected_tensors, load_frame, load_model, read_heads
from lmlab.runs.storage import (
    TASK,
    read_json,
    write_json,
    write_tensors,
)
from lmlab.runs.upgrade import upgrade_task
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import FILE, Frame
from lmlab.tokenizers.processors import FILE as PROCESSOR
from lmlab.tokenizers.processors import load_processor


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


class Export(NamedTuple):
    """What one folder of theirs is to hold, in our terms."""

    table: Family
    kind: str
    values: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    window: int | None
    lmlab_settings: Mapping[str, Any]
    head: TaskHead | None = None


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
        lmlab_settings: dict[str, Any] = {"whole": whole} if not name and values != whole else {}
        lmlab_settings |= {} if frame is None else {"frame": asdict(frame)}
        export = Export(family, kind, values, tensors, model.window, lmlab_settings)
        (folder / name).mkdir(exist_ok=True)
        if head is not None and learnt is not None:
            rest = [name for name in expected_tensors(kind, model.config) if name not in names]
            export, kept = _with_task(export, head, learnt)
            kept |= {name: state[name].detach().cpu() for name in rest}
            if kept:
                write_tensors(folder / KEPT, kept)
        _write_folder(export, tokenizer, folder / name)


def _with_task(export: Export, head: TaskHead, learnt: Learnt) -> tuple[Export, dict[str, Tensor]]:
    """A body with the head of a task, and the tensors of ours that are not, or not so, in their class."""
    both = {**export.tensors, **learnt.tensors}
    written = {**both, **fold(head, learnt.task, both, layers=export.values["layers"])}
    table = with_head(export.table, head)
    theirs = {*export.tensors, *expected_head(head, learnt.task, width=1)}
    kept = {name: both[name] for name in both if name not in theirs or written[name] is not both[name]}
    tensors = {name: tensor for name, tensor in written.items() if name in theirs}
    lmlab_settings = {**export.lmlab_settings, "task": learnt.task}
    return export._replace(table=table, tensors=tensors, head=head, lmlab_settings=lmlab_settings), kept


def _write_folder(export: Export, tokenizer: Tokenizer | None, folder: Path) -> None:
    table, head = export.table, export.head
    adapted = Adapted(export.values, export.tensors, None)
    if table.adaptation is not None and tokenizer is not None:
        adapted = table.adaptation.write(*adapted[:2], pad=find_role(tokenizer, "pad"))
    architecture = _architecture(table, adapted.values) if head is None else Architecture(head.name)
    config = {**write_settings(table, adapted.values), "architectures": [architecture.name], "dtype": "float32"}
    if head is not None:
        config = {**write_head_config(head, export.lmlab_settings["task"]), **config}
    write_weights(folder, weights.write(table, adapted.tensors, prefixed=architecture.prefixed))
    lmlab_settings = {
        "kind": export.kind,
        "version": __version__,
        "model": dict(adapted.values),
        **export.lmlab_settings,
    }
    lmlab_settings |= {"adaptation": adapted.undo} if adapted.undo else {}
    if tokenizer is not None:
        opening = _opening(export, tokenizer)
        config |= {name: token for name, token in _token_ids(table, tokenizer, opening).items() if name not in config}
        lmlab_settings |= _write_tokens(export, tokenizer, folder, adapted.values, opening)
    write_json(folder / "config.json", nest(table, config))
    write_json(folder / OURS, lmlab_settings)


def _write_tokens(
    export: Export, tokenizer: Tokenizer, folder: Path, values: Mapping[str, Any], opening: int
) -> dict[str, Any]:
    """Write the tokenizer of a folder of theirs; return what of ours it cannot say."""
    table, head, frame = export.table, export.head, None
    if head is not None:
        task = export.lmlab_settings["task"]
        segments = ":1" in " ".join(table.template) and values.get("segments", 2) > 1
        frame = split_template(next(iter(task["frame"].values())), segments=segments)
        if head.shifted and find_role(tokenizer, frame[0].split()[-1]) != tokenizer.boundary:
            raise ValueError(f"{head.name} reads the boundary at the end of a text, and {task['frame']} has none there")
    undo = write_tokenizer(tokenizer, folder, table, window=export.window, frame=frame, opening=opening)
    lmlab_settings: dict[str, Any] = {"tokenizer": undo} if undo else {}
    return lmlab_settings | ({"tokenizer_options": options} if (options := tokenizer.options) else {})


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
    frame = export.lmlab_settings.get("frame", {})
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
