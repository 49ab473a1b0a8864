"""Files that would run code or take all memory, if they were read carelessly: pickles, templates, headers, archives."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.reliability.figures import Figure, Scale, shorten
from benchmarks.reliability.processes import resident
from benchmarks.reliability.processes import run as run_child

import lmlab

SECONDS, MEMORY = 1.0, 200 << 20
"""Of CPU time and of memory within which a bomb is refused."""
Case = tuple[str, Callable[[Path], Any]]


class Payload:
    """An object that makes a file when it is unpickled."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


def payloads(scale: Scale) -> Iterator[Figure]:
    """Each payload is read by what would read such a file; none may run."""
    folder = scale.fresh("payloads")
    os.environ.setdefault("LMLAB_CACHE", str(folder / "cache"))
    mark = folder / "executed"
    payload = Payload(str(mark))
    pickle.loads(pickle.dumps(payload))
    assert mark.exists(), "the payload works"
    mark.unlink()
    run = _make_run(folder / "run")
    executed, refused, ignored, odd = [], 0, 0, []
    for name, read in _payload_cases(payload, run):
        own = folder / name.replace(" ", "-").replace("/", "-")
        own.mkdir()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read(own)
            ignored += 1
        except ValueError:
            refused += 1
        except Exception as error:
            odd.append(f"{name}: {type(error).__name__}: {error}")
        if mark.exists():
            executed.append(f"{name} was executed")
            mark.unlink()
    tried = refused + ignored + len(odd)
    yield Figure(
        "pickles and templates",
        tried,
        f"{tried} payloads: 0 executed, {refused} refused, {ignored} not read",
        shorten([*executed, *odd]),
    )


def _make_run(path: Path) -> Path:
    from benchmarks.reliability.families import small_recipe, write_texts
    from benchmarks.reliability.kills import train

    path.parent.mkdir(exist_ok=True)
    train(small_recipe("gpt2", write_texts(path.parent), steps=1), path)
    return path


def _payload_cases(payload: Payload, run: Path) -> list[Case]:
    from lmlab.analysis.bias import read_templates
    from lmlab.data.readers.episode_files import read_episodes
    from lmlab.data.readers.labelled import read_labelled
    from lmlab.data.readers.music.files import read_piece
    from lmlab.data.readers.pictures.decoding import decode_picture
    from lmlab.data.readers.sounds import decode_sound
    from lmlab.interop.arpa import read_arpa
    from lmlab.interop.ctranslate2 import import_ctranslate2
    from lmlab.interop.elmo import import_elmo
    from lmlab.interop.huggingface.importing import import_run
    from lmlab.runs.recipe_record import read_record
    from lmlab.runs.run import resume
    from lmlab.runs.storage import write_manifest
    from lmlab.tokenizers.chat_template import ChatTemplate
    from lmlab.tokenizers.files import load
    from lmlab.tokenizers.word_vectors import read_word_vectors

    raw = pickle.dumps(payload)
    zipped, saved = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as file:
        file.writestr("archive/data.pkl", raw)
    torch.save({"a": payload}, saved)
    objects = io.BytesIO()
    np.save(objects, np.array([payload], dtype=object), allow_pickle=True)
    archive = io.BytesIO()
    np.savez(archive, states=np.array([payload], dtype=object), actions=np.zeros(1), rewards=np.zeros(1))

    def copied(
        name: str, content: bytes, then: Callable[[Path], Any], *, manifest: bool = True
    ) -> Callable[[Path], Any]:
        def read(folder: Path) -> Any:
            import shutil

            shutil.copytree(run, folder / "run")
            (folder / "run" / name).parent.mkdir(exist_ok=True)
            (folder / "run" / name).write_bytes(content)
            if manifest:
                write_manifest(folder / "run")
            return then(folder / "run")

        return read

    def written(name: str, content: bytes, then: Callable[[Path], Any]) -> Callable[[Path], Any]:
        def read(folder: Path) -> Any:
            (folder / name).write_bytes(content)
            return then(folder / name)

        return read

    def from_huggingface(name: str, content: bytes, **config: Any) -> Callable[[Path], Any]:
        def read(folder: Path) -> Any:
            theirs = {
                "model_type": "gpt2",
                "n_embd": 8,
                "n_head": 2,
                "n_layer": 1,
                "n_positions": 8,
                "vocab_size": 10,
                **config,
            }
            (folder / "config.json").write_text(json.dumps(theirs))
            (folder / name).write_bytes(content)
            import_run(folder, folder.with_name(f"{folder.name}-run"))

        return read

    touch = f"touch {payload.mark}"
    chat = "{{ cycler.__init__.__globals__.os.popen('" + touch + "').read() }}"
    other = (
        "{{ ''.__class__.__mro__[1].__subclasses__() }}{% set x = lipsum.__globals__['os'].system('" + touch + "') %}"
    )

    def render(template: str) -> Callable[[Path], Any]:
        def read(folder: Path) -> Any:
            ChatTemplate(text=template, special_tokens={}).render([{"role": "user", "content": "a"}])

        return read

    code = f"import os; os.system({touch!r})".encode()
    cases: list[Case] = [
        ("weights that are a pickle", copied("model.safetensors", raw, lmlab.load)),
        ("weights saved by torch", copied("model.safetensors", saved.getvalue(), lmlab.load)),
        ("weights in a zip", copied("model.safetensors", zipped.getvalue(), lmlab.load)),
        ("pytorch_model.bin in a run", copied("pytorch_model.bin", raw, lmlab.load)),
        ("optimizer.pt in a checkpoint", copied("last/optimizer.pt", saved.getvalue(), resume)),
        ("training state that is a pickle", copied("last/training.safetensors", raw, resume)),
        ("metadata of distributed checkpoints", copied("last/.metadata", raw, resume)),
        ("tokenizer that is a pickle", copied("tokenizer.json", raw, lmlab.load)),
        ("recipe that is a pickle", copied("recipe.json", raw, read_record)),
        (
            "recipe in YAML with an object",
            written("r.toml", f"!!python/object/apply:os.system ['{touch}']".encode(), read_templates),
        ),
        ("pytorch_model.bin of Hugging Face", from_huggingface("pytorch_model.bin", saved.getvalue())),
        ("model.safetensors of Hugging Face that is a pickle", from_huggingface("model.safetensors", raw)),
        ("code of Hugging Face", from_huggingface("modeling_x.py", code, auto_map={"AutoModel": "modeling_x.X"})),
        (
            "model.bin of CTranslate2",
            written("model.bin", raw, lambda path: import_ctranslate2(path.parent, path.with_name("r"))),
        ),
        ("weights of ELMo", written("weights.hdf5", raw, lambda path: import_elmo(path.parent, path.with_name("r")))),
        ("episodes with objects", written("a.npz", archive.getvalue(), lambda path: list(read_episodes([path])))),
        ("episodes in .npy", written("a.npz", objects.getvalue(), lambda path: list(read_episodes([path])))),
        ("labelled examples", written("a.tsv", raw, read_labelled)),
        ("tokenizer", written("tokenizer.json", raw, load)),
        ("SentencePiece", written("spiece.model", raw, load)),
        ("ARPA", written("a.arpa", raw, read_arpa)),
        ("word vectors", written("v.txt", raw, read_word_vectors)),
        ("picture", lambda folder: decode_picture(raw, name="a.png")),
        ("sound", lambda folder: decode_sound(raw, name="a.wav")),
        ("music", lambda folder: list(read_piece(raw, name="a.mid"))),
        ("chat template with os", render(chat)),
        ("chat template with subclasses", render(other)),
    ]
    return cases


def bombs(scale: Scale) -> Iterator[Figure]:
    """Small files that claim, or unpack to, much; a process reads each, and its CPU time and memory are measured."""
    folder = scale.fresh("bombs")
    os.environ.setdefault("LMLAB_CACHE", str(folder / "cache"))
    wrong, worst, largest, tried = [], 0.0, 0, 0
    before = run_child(lambda: None, log=folder / "log").peak
    for name, make, read in _bomb_cases(folder, scale):
        path = make()
        tried += 1
        child = run_child(lambda read=read, path=path: read(path), log=folder / "log")  # type: ignore[misc]
        grown, seconds = child.peak - max(before, resident()), child.usage.ru_utime + child.usage.ru_stime
        worst, largest = max(worst, seconds), max(largest, grown)
        if child.status != 2:
            wrong.append(f"{name}: status {child.status}, not refused: {child.said()[-300:]}")
        elif seconds > SECONDS or grown > MEMORY:
            wrong.append(f"{name}: {seconds:.2f} s, {grown >> 20} MB: {child.said()[-200:]}")
        path.unlink()
    result = f"{tried} files refused, at most {worst:.2f} s of CPU time and {max(0, largest) >> 20} MB each"
    yield Figure("header and archive bombs", tried, result, shorten(wrong))


def _bomb_cases(folder: Path, scale: Scale) -> list[tuple[str, Callable[[], Path], Callable[[Path], Any]]]:
    from lmlab.data.readers.episode_files import read_episodes
    from lmlab.data.readers.files import read_whole
    from lmlab.data.readers.music.files import read_piece
    from lmlab.data.readers.pictures.decoding import read_picture
    from lmlab.data.readers.pictures.files import find_pictures
    from lmlab.data.readers.pictures.idx import read_idx
    from lmlab.data.readers.sounds import decode_sound
    from lmlab.data.readers.text import find, read
    from lmlab.interop.arpa import read_arpa
    from lmlab.runs.model_files import expected_tensors, read_description
    from lmlab.runs.storage import read_json, read_tensors
    from lmlab.tokenizers.files import load
    from lmlab.tokenizers.word_vectors import read_word_vectors

    def file(name: str, content: bytes | Callable[[], bytes]) -> Callable[[], Path]:
        def make() -> Path:
            path = folder / name
            path.write_bytes(content() if callable(content) else content)
            return path

        return make

    def header(entries: Any, data: bytes = b"") -> bytes:
        text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
        return struct.pack("<Q", len(text)) + text + data

    def text(path: Path) -> Any:
        return sum(len(block) for source in find([path], spool=lambda stream, name: path) for block in read(source))

    one = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    many = lambda: header({f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(10**6)})  # noqa: E731
    ten, hundred = scale.count(1, 10) << 30, scale.count(20, 99) << 20
    config = json.dumps({"kind": "gpt2", "model": {"vocabulary": 10**9, "width": 10**9, "heads": 1, "layers": 10**9}})
    widths = json.dumps({"kind": "lstm", "model": {"vocabulary": 2**62, "width": 2**62, "hidden": 2**62, "layers": 1}})
    return [
        ("header of 100 MB", file("a.safetensors", lambda: header(b"{" + b" " * (hundred - 2) + b"}")), read_tensors),
        ("header that claims 2^63 bytes", file("b.safetensors", struct.pack("<Q", 2**63) + b"{}"), read_tensors),
        ("10^6 tensors", file("c.safetensors", many), read_tensors),
        (
            "shape whose product overflows",
            file("d.safetensors", header({"a": {**one, "shape": [2**62, 8]}}, bytes(4))),
            read_tensors,
        ),
        ("overlapping offsets", file("e.safetensors", header({"a": one, "b": one}, bytes(4))), read_tensors),
        (
            "duplicate keys",
            file("f.safetensors", header(b'{"a":%s,"a":%s}' % ((json.dumps(one).encode(),) * 2), bytes(4))),
            read_tensors,
        ),
        ("10 GB of text in gzip", file("g.txt.gz", lambda: gzip_of(ten)), text),
        ("10 GB of examples in gzip", file("h.tsv.gz", lambda: gzip_of(ten)), read_whole),
        (
            "10 GB of ARPA in gzip",
            file("i.arpa.gz", lambda: gzip_of(ten, b"\\data\\\nngram 1=9999999999\n\n\\1-grams:\n")),
            read_arpa,
        ),
        (
            "10 GB in an archive of arrays",
            file("j.npz", lambda: zip_of("states.npy", ten, npy_header(ten))),
            lambda p: list(read_episodes([p])),
        ),
        (
            "10 GB in an archive of pictures",
            file("k.zip", lambda: zip_of("a.png", ten, b"\x89PNG\r\n\x1a\n")),
            lambda p: [row.source.read() for row in find_pictures(str(p)).rows],
        ),
        (
            "array that claims 10^18 numbers",
            file("l.npz", lambda: zip_of("states.npy", 1000, npy_header(1 << 60))),
            lambda p: list(read_episodes([p])),
        ),
        ("picture of 50,000 x 50,000", file("m.png", png(50_000, 50_000)), read_picture),
        ("picture of 2^31 x 2^31", file("n.png", png(2**31 - 1, 2**31 - 1)), read_picture),
        (
            "IDX that claims 2^31 pictures",
            file("train-images-idx3-ubyte", struct.pack(">BBBBIII", 0, 0, 8, 3, 2**31, 2**15, 2**15)),
            read_idx,
        ),
        (
            "WAV that claims 4 GB",
            file("o.wav", wav(2**32 - 1, 2**31)),
            lambda p: decode_sound(p.read_bytes(), name="o.wav"),
        ),
        (
            "MIDI that claims 2^32 bytes",
            file("p.mid", b"MThd" + struct.pack(">IHHH", 6, 1, 65535, 96) + b"MTrk\xff\xff\xff\xff"),
            lambda p: list(read_piece(p.read_bytes(), name="p.mid")),
        ),
        (
            "ARPA that claims 10^12 n-grams",
            file("q.arpa", b"\\data\\\nngram 1=1000000000000\n\n\\1-grams:\n-1 a\n\n\\end\\\n"),
            read_arpa,
        ),
        ("word vectors that claim 10^9 words", file("r.txt", b"1000000000 1000000\nthe 0.1\n"), read_word_vectors),
        ("SentencePiece that claims 2^60 bytes", file("s.model", b"\x0a" + b"\xff" * 8 + b"\x0f" + b"x"), load),
        ("JSON nested 10^6 deep", file("t.json", b"[" * 10**6), read_json),
        ("number of 10^7 digits", file("u.json", b"9" * 10**7), read_json),
        (
            "settings for 10^27 weights",
            file("config.json", config.encode()),
            lambda p: expected_tensors(*read_description(p.parent)),
        ),
        (
            "settings that no tensor can have",
            file("config.json", widths.encode()),
            lambda p: expected_tensors(*read_description(p.parent)),
        ),
    ]


def gzip_of(size: int, begin: bytes = b"") -> bytes:
    """A gzip file that unpacks to `size` bytes of the letter a, in members of 16 MB."""
    part = 16 << 20
    return gzip.compress(begin, mtime=0) * bool(begin) + gzip.compress(b"a" * part, mtime=0) * (size // part)


def zip_of(name: str, size: int, begin: bytes) -> bytes:
    """A zip file with one entry that unpacks to `begin` and zeros, of `size` bytes in all; its checksum is wrong."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    content = packer.compress(begin) + packer.flush(zlib.Z_FULL_FLUSH)
    part = min(size, 16 << 20)
    block = zlib.compressobj(9, zlib.DEFLATED, -15)
    zeros = block.compress(bytes(part)) + block.flush(zlib.Z_FULL_FLUSH)
    content += zeros * (size // part) + packer.flush()
    encoded, total = name.encode(), len(begin) + part * (size // part)
    capped = min(total, 2**32 - 1)
    fields = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0, 0, len(content), capped, len(encoded), 0)
    central = struct.pack(
        "<HHHHHHIIIHHHHHII", 20, 20, 0, 8, 0, 0, 0, len(content), capped, len(encoded), 0, 0, 0, 0, 0, 0
    )
    start = b"PK\x03\x04" + fields + encoded + content
    directory = b"PK\x01\x02" + central + encoded
    return start + directory + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(directory), len(start), 0)


def npy_header(count: int) -> bytes:
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({count}, 1), }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    pixels = zlib.compress(bytes(10_000_000), 9)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", pixels)
        + chunk(b"IEND", b"")
    )


def wav(size: int, rate: int) -> bytes:
    form = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", size, b"WAVE", b"fmt ", 16, 1, 65535, rate, rate, 1, 8)
    return form + struct.pack("<4sI", b"data", size) + bytes(100)
