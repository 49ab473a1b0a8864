"""Runs in bad luck and on odd texts: a full disk, an interruption, a text of a few bytes, any language."""

from __future__ import annotations

import errno
import json
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError
from test_runs import TEXT, TINY, after, files, recipe, weights

import lmlab
from lmlab.runs import run
from lmlab.runs.storage import FullDiskError


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text(TEXT)
    return path


def no_room(*arguments: Any, **options: Any) -> Any:
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def no_room_for_python(*arguments: Any, **options: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("fail", [no_room, no_room_for_python])
def test_a_full_disk_loses_nothing(fail: Any, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.start(recipe(text), tmp_path / "whole")
    run.start(recipe(text), tmp_path / "run", interrupted=after(3))
    good = {name: value[0] for name, value in files(tmp_path / "run").items()}
    with monkeypatch.context() as patch:
        patch.setattr("lmlab.runs.storage.save_file", fail)
        with pytest.raises(FullDiskError) as reported:
            run.resume(tmp_path / "run")
        with pytest.raises(FullDiskError, match="no checkpoint had been written yet"):
            run.start(recipe(text), tmp_path / "new")
    assert re.match(
        r"no space left on device: .*safetensors could not be written; nothing is lost, the last checkpoint is "
        r".*run/last \(step 3\): free some space, then lmlab train --resume .*run$",
        str(reported.value),
    )
    assert not (tmp_path / "new").exists()
    left = {name: value[0] for name, value in files(tmp_path / "run").items()}
    assert left.keys() == good.keys(), "nothing temporary is left"
    assert all(left[name] == good[name] for name in good if name != "metrics.jsonl")
    run.resume(tmp_path / "run")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of POSIX")
def test_a_file_that_grows_too_large_is_one_line(text: Path, tmp_path: Path) -> None:
    """A real limit of the system: the kernel refuses to write more than a number of bytes to a file."""
    run.start(recipe(text), tmp_path / "run", interrupted=after(3))
    size = (tmp_path / "run" / "last" / "model.safetensors").stat().st_size
    code = (
        "import resource, sys; from lmlab.cli import main; "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size // 2}, {size // 2})); "
        f"sys.argv = ['lmlab', 'train', '--resume', {str(tmp_path / 'run')!r}]; main()"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert said.returncode == 2, said.stderr
    assert "Traceback" not in said.stderr
    assert "error: file too large: " in said.stderr
    assert "nothing is lost, the last checkpoint is" in said.stderr
    assert not [name for name in files(tmp_path / "run") if ".new" in name or ".staged" in name]
    assert run.resume(tmp_path / "run").progress.ended == "budget"


@pytest.mark.parametrize("smoothing", ["modified-kneser-ney", "jelinek-mercer", "backoff", "add-k"])
@pytest.mark.filterwarnings("ignore:too few n-grams")
def test_a_count_is_interrupted_wherever_it_is(
    smoothing: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(text, "ngram", model={"kind": "ngram", "order": 4, "smoothing": smoothing})
    asked = 0

    def count() -> bool:
        nonlocal asked
        asked += 1
        return False

    run.start(made, tmp_path / "whole", interrupted=count)
    assert asked >= 2 * 3 + 4, "before and after each sort, and for each order that is smoothed"
    for number in range(asked):
        assert run.start(made, tmp_path / "run", interrupted=after(number)).interrupted
        assert not (tmp_path / "run").exists(), f"asked {number} times"


@pytest.mark.parametrize("kind", ["gpt2", "ngram"])
@pytest.mark.filterwarnings("ignore:too few n-grams", "ignore:bpe")
def test_a_text_of_200_bytes_trains(kind: str, tmp_path: Path) -> None:
    for size, held_out in ((200, True), (100, False)):
        (tmp_path / "short.txt").write_text(TEXT[:size])
        model = {"kind": kind, **(TINY if kind == "gpt2" else {})}
        with pytest.warns(UserWarning, match=f"the text has {size} bytes, too few to split into train 0.9"):
            done = run.start(recipe(tmp_path / "short.txt", model=model), tmp_path / f"run{size}")
        assert done.progress.ended == "budget"
        assert (done.bits_per_byte is not None) == held_out
        assert lmlab.load(tmp_path / f"run{size}").score("line 3").nats > 0


def test_one_document_is_mentioned_once(text: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text(TEXT.replace("line", "Zeile") * 2)
    data = {"text": [f"en={text}", f"de={other}"]}
    made = recipe(text, "mbert", data=data, model={"kind": "mbert", **TINY, "window": 32})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run.start(made, tmp_path / "run")
    assert sum("the text is one document" in str(each.message) for each in caught) == 1


def test_a_lossy_tokenizer_is_labelled(text: Path, tmp_path: Path) -> None:
    for spec, lossy in (("words:20", True), ("bytes", False)):
        done = run.start(recipe(text, tokenizer={"spec": spec}), tmp_path / f"run-{lossy}")
        assert ("(lossy: " in done.quality) == lossy
        assert ("(lossy: " in (tmp_path / f"run-{lossy}" / "README.md").read_text()) == lossy


def test_what_reads_backwards_is_not_asked_to_generate(text: Path, tmp_path: Path) -> None:
    settings = {"model": {"kind": "lstm", "size": "tiny"}, "objective": {"kind": "causal", "backwards": True}}
    done = run.start(recipe(text, **settings), tmp_path / "run")
    assert [command.split()[1] for command in done.next_step.split("   or: ")] == ["score", "embed"]


def test_the_next_commands_speak_the_language_of_the_text(tmp_path: Path) -> None:
    texts = {
        "Der Mond ist aufgegangen, die goldnen Sternlein prangen.\n": "Der Mond ist aufgegangen,",
        "床前明月光疑是地上霜舉頭望明月低頭思故鄉\n": "床前明月光疑是地上霜舉頭望明月低",
        "it's a [b]bold[/b] claim, isn't it?\n": "it's a [b]bold[/b] claim,",
    }
    for number, (line, prompt) in enumerate(texts.items()):
        path = tmp_path / f"{number}.txt"
        path.write_text(line * 60, encoding="utf-8")
        done = run.start(recipe(path), tmp_path / f"my run {number}")
        command, quoted = done.next_step.split("   or: ")[0], shlex.quote(prompt)
        assert command == f"lmlab generate '{tmp_path / f'my run {number}'}' {quoted}"
        assert shlex.split(command)[3:] == [prompt]
        assert f"`lmlab generate RUN {quoted}`" in (tmp_path / f"my run {number}" / "README.md").read_text()


@pytest.mark.parametrize(
    ("settings", "error"),
    [({"width": 10**7, "window": 10**6}, "of another shape"), ({"layers": 10**7}, "at most 10,000 layers")],
)
def test_enormous_settings_are_refused_before_memory_is_taken(
    settings: dict[str, int], error: str, text: Path, tmp_path: Path
) -> None:
    run.start(recipe(text), tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["model"] |= settings
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    (tmp_path / "run" / "manifest.json").unlink()
    with pytest.raises(ValueError, match=error):
        lmlab.load(tmp_path / "run")
