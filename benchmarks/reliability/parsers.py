"""Every reader of files that come from others: small valid files of each, and the function that reads one."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

Read = Callable[[bytes], Any]


class Parser(NamedTuple):
    """A reader, and valid files for it."""

    read: Read
    seeds: list[bytes]


def at(path: Path, reader: Callable[[Path], Any]) -> Read:
    """A reader of files as one of bytes."""

    def read(data: bytes) -> Any:
        with open(path, "wb") as file:
            file.write(data)
        return reader(path)

    return read


def as_json(*values: Any) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


def config(folder: Path) -> Parser:
    """`config.json`: the settings of a model."""
    from lmlab.runs.model_files import expected_tensors, read_description

    def read(path: Path) -> Any:
        kind, settings = read_description(path.parent)
        return expected_tensors(kind, settings)

    values = [
        {
            "kind": "gpt2",
            "version": "0.6.0",
            "model": {"vocabulary": 30, "width": 8, "heads": 2, "layers": 1, "window": 8},
        },
        {"kind": "lstm", "version": "0.6.0", "model": {"vocabulary": 30, "width": 8, "hidden": 8, "layers": 1}},
        {
            "kind": "bert",
            "version": "0.6.0",
            "model": {"vocabulary": 30, "width": 8, "heads": 2, "layers": 1, "window": 8},
        },
    ]
    return Parser(at(folder / "config.json", read), as_json(*values))


def recipe(folder: Path) -> Parser:
    """A recipe in TOML, as `lmlab train --recipe` reads it."""
    from lmlab.config import read_toml
    from lmlab.runs.recipe import make_recipe

    text = folder / "book.txt"
    text.write_text("a b c\n")
    one = f"""[data]
text = "{text}"
split = [0.8, 0.1, 0.1]
[model]
kind = "gpt2"
size = "tiny"
dropout = 0.1
[tokenizer]
spec = "bpe:300"
[objective]
kind = "causal"
[train]
budget = "5min"
batch = 4
rate = 1e-3
"""
    other = f"""[data]
pairs = "{text}"
[model]
kind = "transformer"
layers = 2
[train]
budget = "3epochs"
"""
    return Parser(at(folder / "recipe.toml", lambda path: make_recipe(read_toml(path))), [one.encode(), other.encode()])


def record(folder: Path) -> Parser:
    """`recipe.json` of a run."""
    from lmlab.runs.recipe import make_recipe
    from lmlab.runs.recipe_record import RecipeRecord, read_groups, read_record, write_recipe

    (folder / "book.txt").write_text("a b c\n")
    values = {"data": {"text": str(folder / "book.txt")}, "model": {"kind": "gpt2"}, "train": {"budget": "2steps"}}
    write_recipe(folder, RecipeRecord(make_recipe(values), "0" * 64, None))

    def read(path: Path) -> Any:
        read_groups(path)
        return read_record(path.parent)

    return Parser(at(folder / "recipe.json", read), [(folder / "recipe.json").read_bytes()])


def tokenizer(folder: Path) -> Parser:
    """`tokenizer.json` of each kind."""
    from lmlab.tokenizers import train
    from lmlab.tokenizers.files import load

    text = ["the cat sat on the mat, and the dog ate the log. " * 3]
    specs = ("characters", "bytes", "words:20", "bpe:270", "wordpiece:80", "unigram:300")
    seeds = [train(spec, text).engine.to_str().encode() for spec in specs]

    def read(path: Path) -> Any:
        found = load(path)
        return found.decode(found.encode("the cat é\u0000"))

    return Parser(at(folder / "tokenizer.json", read), seeds)


def spellings(folder: Path) -> Parser:
    """`tokenizer.json` with `tokenizer_options.json`, for a model that reads letters."""
    from lmlab.tokenizers import train
    from lmlab.tokenizers.files import load_imported
    from lmlab.tokenizers.spellings import Spellings

    text = ["the cat sat on the mat, and the dog ate the log. " * 3]
    (folder / "tokenizer_options.json").write_text('{"split_special_tokens": false}')
    seeds = [train(spec, text).engine.to_str().encode() for spec in ("spelled:20", "words:20", "bpe:270")]

    def read(path: Path) -> Any:
        found = load_imported(path.parent)
        return Spellings(found)(torch.tensor(found.encode("the cat")[:4], dtype=torch.long))

    return Parser(at(folder / "tokenizer.json", read), seeds)


def options(folder: Path) -> Parser:
    """`tokenizer_options.json`, `frame.json` and `processor.json`, by their first byte."""
    from lmlab.tokenizers import train
    from lmlab.tokenizers.files import load
    from lmlab.tokenizers.frames import Frame
    from lmlab.tokenizers.processors import load_processor

    train("words:20", ["the cat sat"]).save(folder / "tokenizer.json")

    def read(data: bytes) -> Any:
        kind, content = data[:1], data[1:]
        name = {b"f": "frame.json", b"p": "processor.json"}.get(kind, "tokenizer_options.json")
        (folder / name).write_bytes(content)
        if kind == b"f":
            return Frame.load(folder).templates
        return load_processor(folder) if kind == b"p" else load(folder / "tokenizer.json")

    frame = {
        **{"templates": {"tokens": "cls a:0 sep:0 [b:1 sep:1]"}, "specials": {"tokens": {"cls": 2, "sep": 3}}},
        **{"window": 24, "anchor": "first", "stride": None, "orders": ["ab", "ba"], "backwards": []},
    }
    seeds = [b"o" + each for each in as_json({"boundary": "the"}, {"split_special_tokens": False})]
    seeds += [b"f" + each for each in as_json(frame)]
    seeds += [b"p" + each for each in as_json({"kind": "pictures", "height": 8, "width": 8, "channels": 3})]
    return Parser(read, seeds)


def arpa(folder: Path) -> Parser:
    """N-gram models as text."""
    from lmlab.interop.arpa import read_arpa

    one = b"""\\data\\
ngram 1=4
ngram 2=3

\\1-grams:
-99\t<s>\t-0.3
-0.6\t</s>
-0.5\ta\t-0.2
-0.7\tb\t-0.1

\\2-grams:
-0.2\t<s> a
-0.4\ta b
-0.3\tb </s>

\\end\\
"""
    return Parser(
        at(folder / "model.arpa", read_arpa), [one, one.replace(b"-0.4", b"0"), one.replace(b"b", b"\\u0020")]
    )


def manifest(folder: Path) -> Parser:
    """`manifest.json` of a run."""
    from lmlab.runs.storage import verify, write_json, write_manifest

    write_json(folder / "config.json", {"kind": "gpt2"})
    write_json(folder / "frame.json", {})
    write_manifest(folder)
    return Parser(
        at(folder / "manifest.json", lambda path: verify(path.parent)), [(folder / "manifest.json").read_bytes()]
    )


def tensors(folder: Path) -> Parser:
    """Safetensors."""
    from safetensors.torch import save

    from lmlab.runs.storage import read_tensors

    one = {"a": torch.arange(6.0).reshape(2, 3), "b.weight": torch.ones(4, dtype=torch.int64), "c": torch.zeros(0, 3)}
    seeds = [save(one), save({"x": torch.ones(3, dtype=torch.bfloat16)}, {"format": "pt"})]
    return Parser(at(folder / "model.safetensors", read_tensors), seeds)


def pairs(folder: Path) -> Parser:
    """Parallel text: TSV, JSON lines, or JSON by language."""
    from lmlab.data.readers.pairs import Aligned, read_pairs
    from lmlab.data.readers.text import find

    def read(data: bytes) -> Any:
        path = folder / ("pairs.jsonl" if data[:1] in b"{[" else "pairs.tsv")
        path.write_bytes(data)
        return list(read_pairs(Aligned(find([path], spool=lambda stream, name: path)[0])))

    lines = b'{"source": "a b", "target": "c"}\n{"source": "d", "target": "e f"}\n'
    wmt = b'{"translation": {"en": "a", "de": "b"}}\n{"translation": {"en": "c", "de": "d"}}\n'
    return Parser(read, [b"a b\tc d\ne\tf\n", lines, wmt, b"\xef\xbb\xbfa\tb\r\nc\td\r\n"])


def labelled(folder: Path, ending: str, seeds: list[bytes]) -> Parser:
    """Labelled examples, found out by `lmlab finetune`."""
    from lmlab.data.readers.labelled import read_labelled

    return Parser(at(folder / f"data{ending}", read_labelled), seeds)


def examples(folder: Path) -> Parser:
    """Tables of labelled examples: TSV, CSV, JSON, fastText and TREC, by their first byte."""
    from lmlab.data.readers.labelled import read_labelled

    endings = {b"t": "data.tsv", b"c": "data.csv", b"j": "data.jsonl", b"x": "data.txt"}

    def read(data: bytes) -> Any:
        path = folder / endings.get(data[:1], "data.json")
        path.write_bytes(data[1:])
        return read_labelled(path)

    rows = [("a good film", "good"), ("bad, very bad", "bad"), ("fine", "good"), ("poor", "bad")] * 2
    seeds = [b"t" + b"".join(f"{text}\t{label}\n".encode() for text, label in rows)]
    seeds += [b"c" + b"text,label\n" + b"".join(f'"{text}",{label}\n'.encode() for text, label in rows)]
    seeds += [b"j" + b"".join(json.dumps({"text": text, "label": label}).encode() + b"\n" for text, label in rows)]
    seeds += [b"J" + as_json([{"a": text, "b": text, "score": number / 2} for number, (text, _) in enumerate(rows)])[0]]
    seeds += [b"x" + b"".join(f"__label__{label} {text}\n".encode() for text, label in rows)]
    seeds += [b"x" + b"".join(f"DESC:manner How {text} ?\nHUM:ind Who {text} ?\n".encode() for text, _ in rows)]
    return Parser(read, seeds)


def conll(folder: Path) -> Parser:
    """Tagged words in columns, and CoNLL-U."""
    two = b"-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nrejects VBZ I-VP O\n\nPeter NNP I-NP B-PER\nsat VBD I-VP O\n"
    tabs = b"The\tDET\ncat\tNOUN\n\nA\tDET\ndog\tNOUN\n"
    rows = ("1 The the DET DT _ 2 det _ _", "2-3 cats _ _ _ _ _ _ _ _", "2 cats cat NOUN NNS _ 0 root _ _")
    universal = "# text = The cats\n" + "".join("\t".join(row.split()) + "\n" for row in rows) + "\n"
    return labelled(folder, ".conll", [two, tabs, universal.encode()])


def squad(folder: Path) -> Parser:
    """Questions with spans, nested and flat."""
    answer = {"text": "cat", "answer_start": 4}
    asked = [
        {"question": "Who sat?", "id": "1", "answers": [answer]},
        {"question": "Why?", "id": "2", "answers": [], "is_impossible": True},
    ]
    nested = {"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": "The cat sat.", "qas": asked}]}]}
    flat = {"id": "1", "context": "The cat sat.", "question": "Who?", "answers": {"text": ["cat"], "answer_start": [4]}}
    return labelled(folder, ".json", as_json(nested, flat, [flat, {**flat, "id": "2"}]))


def images(folder: Path) -> Parser:
    """Pictures of all formats."""
    from PIL import Image

    from lmlab.data.readers.pictures.decoding import decode_picture, picture_size

    pixels = (np.arange(6 * 5 * 3) * 7 % 256).astype(np.uint8).reshape(6, 5, 3)
    seeds = []
    for form, mode in (
        ("PNG", "RGB"),
        ("PNG", "P"),
        ("PNG", "RGBA"),
        ("JPEG", "RGB"),
        ("JPEG", "CMYK"),
        ("GIF", "P"),
        ("WEBP", "RGB"),
        ("BMP", "RGB"),
        ("TIFF", "RGB"),
        ("PPM", "RGB"),
    ):
        file = io.BytesIO()
        Image.fromarray(pixels).convert(mode).save(file, form)
        seeds.append(file.getvalue())

    def read(data: bytes) -> Any:
        picture_size(data, name="a.png")
        return decode_picture(data, name="a.png")

    return Parser(read, seeds)


def wav(folder: Path) -> Parser:
    """WAV: PCM, float, 24 bits, and with further chunks."""
    from lmlab.data.readers.sounds import decode_sound, encode_wav

    samples = np.sin(np.arange(100) / 5).astype(np.float32)
    plain, floats = encode_wav(samples, 8000), samples.tobytes()
    head = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 36 + len(floats), b"WAVE", b"fmt ", 16, 3, 1, 8000, 32000, 4, 32)
    wide = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 36 + 60, b"WAVE", b"fmt ", 16, 1, 2, 44100, 264600, 6, 24)
    listed = plain[:12] + b"LIST" + struct.pack("<I", 8) + b"INFOabcd" + plain[12:]
    floating = head + struct.pack("<4sI", b"data", len(floats)) + floats
    seeds = [plain, floating, wide + b"data" + struct.pack("<I", 60) + bytes(60), listed]
    return Parser(lambda data: decode_sound(data, name="a.wav"), seeds)


def clips(folder: Path) -> Parser:
    """Tables of recordings."""
    from lmlab.data.readers.clips import read_clips
    from lmlab.data.readers.sounds import encode_wav

    for name in ("a", "b"):
        (folder / f"{name}.wav").write_bytes(encode_wav(np.zeros(80, np.float32), 8000))

    def read(path: Path) -> Any:
        return [clip.read() for clip in read_clips(str(path))]

    seeds = [b"path\ttext\na.wav\tone two\nb.wav\tthree\n", b"path\ttext\nb.wav\t\xc3\xa9 one\n"]
    return Parser(at(folder / "clips.tsv", read), seeds)


def midi(folder: Path) -> Parser:
    """MIDI, then encoded as events and on a grid."""
    from lmlab.data.readers.music.files import read_piece
    from lmlab.tokenizers.processors.notes import Events, Grid

    notes = [(0, 0x90, pitch, 80) for pitch in (60, 64, 67)] + [(96, 0x80, pitch, 0) for pitch in (60, 64, 67)]
    events = b"".join(bytes([wait, status, pitch, loud]) for wait, status, pitch, loud in notes)
    track = b"\x00\xff\x51\x03\x07\xa1\x20" + b"\x00\xc0\x05" + events + b"\x00\xff\x2f\x00"
    one = b"MThd" + struct.pack(">IHHH", 6, 1, 2, 96) + 2 * (b"MTrk" + struct.pack(">I", len(track)) + track)

    def read(data: bytes) -> Any:
        for piece in read_piece(data, name="a.mid"):
            Events().encode(piece.music)
            Grid().encode(piece.music)

    return Parser(read, [one])


def rolls(folder: Path) -> Parser:
    """Piano rolls in JSON."""
    from lmlab.data.readers.music.rolls import read_rolls

    piece = [[67, 64, 60, 48], [67, 64, -1, 48], [69, 65, 60]]
    seeds = as_json({"train": [piece, piece], "valid": [piece], "test": [piece]}, piece)
    return Parser(lambda data: list(read_rolls(data, name="a.json")), seeds)


def episodes(folder: Path) -> Parser:
    """Episodes: JSON lines, and NumPy archives."""
    from lmlab.data.readers.episode_files import read_episodes

    def read(data: bytes) -> Any:
        path = folder / ("a.npz" if data[:2] == b"PK" else "a.jsonl")
        path.write_bytes(data)
        return list(read_episodes([path]))

    one = {"states": [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], "actions": [0, 1, 0], "rewards": [1.0, 1.0, 0.5]}
    other = {"observations": [[1, 2], [3, 4]], "actions": [[0.5], [-0.5]], "rewards": [0, -1]}
    seeds = [b"\n".join(as_json(one, one)), *as_json(other)]
    for extra in ({"indices": np.array([2])}, {"terminals": np.array([False, True, False, True])}):
        file = io.BytesIO()
        states = np.arange(8, dtype=np.float32).reshape(4, 2)
        np.savez(file, states=states, actions=np.array([0, 1, 1, 0]), rewards=np.ones(4), **extra)  # type: ignore[arg-type]
        seeds.append(file.getvalue())
    return Parser(read, seeds)


def tables(folder: Path) -> Parser:
    """Tables of pictures: TSV, CSV, and JSON lines with regions."""
    from lmlab.data.readers.pictures.tables import read_table

    def read(data: bytes) -> Any:
        path = folder / {b"{": "t.jsonl", b"p": "t.csv"}.get(data[:1], "t.tsv")
        path.write_bytes(data)
        return read_table(path)

    seeds = [
        b"Picture\tcaption\na.png\ta red circle\nb.png\ta blue star\n",
        b'picture,question,answer\na.png,how many?,two\nb.png,"is it, ""red""?",yes\n',
        b'{"picture": "a.png", "caption": "x", "regions": [[0, 0, 0.5, 1]]}\n'
        b'{"picture": "b.png", "caption": "y", "regions": [{"box": [0, 0, 1, 1], "name": "a", "features": [1, 2]}]}\n',
    ]
    return Parser(read, seeds)


def idx(folder: Path) -> Parser:
    """MNIST's own files."""
    from lmlab.data.readers.pictures.idx import read_idx

    pictures = struct.pack(">BBBBIII", 0, 0, 8, 3, 3, 4, 4) + bytes(range(48))
    return Parser(
        at(folder / "train-images-idx3-ubyte", read_idx), [pictures, struct.pack(">BBBBI", 0, 0, 8, 1, 5) + bytes(5)]
    )


def vectors(folder: Path) -> Parser:
    """Word vectors in the text formats of word2vec and GloVe."""
    from lmlab.tokenizers.word_vectors import read_word_vectors

    seeds = [b"2 3\nthe 0.1 0.2 0.3\ncat -1 2e-3 0\n", b"the 0.1 0.2\ncat -1 2\n"]
    return Parser(at(folder / "vectors.txt", read_word_vectors), seeds)


def sentencepiece(folder: Path) -> Parser:
    """SentencePiece vocabularies."""
    from lmlab.tokenizers.sentencepiece import read_model

    def piece(text: str, score: float, kind: int) -> bytes:
        content = (
            b"\x0a"
            + bytes([len(text.encode())])
            + text.encode()
            + b"\x15"
            + struct.pack("<f", score)
            + b"\x18"
            + bytes([kind])
        )
        return b"\x0a" + bytes([len(content)]) + content

    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("▁the", -1.5, 1), ("a", -2.0, 1), ("▁", -3.0, 1)]
    trainer = b"\x12\x02\x18\x01"
    return Parser(at(folder / "spiece.model", read_model), [b"".join(piece(*each) for each in pieces) + trainer])


def text(folder: Path) -> Parser:
    """Any text, and gzip."""
    from lmlab.data.readers.text import find, read

    def read_all(data: bytes) -> Any:
        path = folder / ("book.txt.gz" if data[:2] == b"\x1f\x8b" else "book.txt")
        path.write_bytes(data)
        return [block for source in find([path], spool=lambda stream, name: path) for block in read(source)]

    seeds = [
        b"one line\nand another\r\n\r\nlast",
        "é ü 漢字 🎉\n".encode() * 3,
        gzip.compress(b"a b c\n" * 20, mtime=0),
    ]
    return Parser(read_all, seeds)


def template(folder: Path) -> Parser:
    """Prompt templates in TOML."""
    from lmlab.prompting.templates import BUILTIN, find_template

    return Parser(
        at(folder / "t.toml", lambda path: find_template(str(path))), [path.read_bytes() for path in BUILTIN.values()]
    )


PARSERS: dict[str, Callable[[Path], Parser]] = {
    each.__name__: each
    for each in (
        *(
            config,
            recipe,
            record,
            tokenizer,
            spellings,
            options,
            arpa,
            manifest,
            tensors,
            pairs,
            examples,
            conll,
            squad,
        ),
        *(images, wav, clips, midi, rolls, episodes, tables, idx, vectors, sentencepiece, text, template),
    )
}


def make_parser(name: str, folder: Path) -> Parser:
    """A parser that keeps its files in a folder of its own."""
    own = folder / name
    os.makedirs(own, exist_ok=True)
    return PARSERS[name](own)
