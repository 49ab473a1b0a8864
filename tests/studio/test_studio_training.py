"""Training from the browser: the command that it stands for, who may start it, and that stopping it saves."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmlab.cli.commands import COMMANDS, load_command
from lmlab.studio.jobs import TRAINED, JobRequest, Jobs
from lmlab.studio.processes import Process
from patience import wait_until
from studio_texts import KNOWS


def make(tmp_path: Path, **asked: Any) -> str:
    (tmp_path / "runs").mkdir(exist_ok=True)
    (tmp_path / "a book.txt").write_text("some text")
    return Jobs(tmp_path / "runs", [tmp_path / "a book.txt"]).command(JobRequest(**asked))


def test_the_command_is_one_that_can_be_typed(tmp_path: Path) -> None:
    for asked in ({"models": ["gpt2"], "text": 1, "seed": 3}, {"what": "compare", "models": ["ngram", "lstm"]}):
        program, verb, *arguments = shlex.split(make(tmp_path, **asked))
        assert program == "lmlab"
        load_command(COMMANDS[verb]).make_context(verb, arguments)  # typer understands it
    assert "'a book.txt'" in make(tmp_path, models=["gpt2"], text=1)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"name": "../out"}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": ".hidden"}, "name"),
        ({"name": "-o"}, "name"),
        *(({"name": name}, "choose another") for name in ("last", "previous", "checkpoints", "sets", "trials")),
        *(({"name": name}, "choose another") for name in ("sweep", "Last", "model.safetensors", "readme.md")),
        ({"budget": "30s; rm -r x"}, "budget"),
        ({"tokenizer": "/etc/passwd"}, "tokenizer"),
        ({"models": ["gpt3"]}, "gpt2"),
        ({"models": ["transformer"]}, "pairs of texts"),
        ({"models": []}, "models"),
        ({"models": ["lstm", "gpt2"]}, "train one, or compare several"),
        ({"text": 7}, "text = 7"),
        ({"size": "huge"}, "size"),
    ],
)
def test_what_cannot_be_started_is_reported(client_of: Callable[..., Any], asked: dict[str, Any], message: str) -> None:
    client = client_of()
    for path in ("jobs", "jobs/command"):
        response = client.post(f"/studio/api/{path}", json=asked)
        assert response.status_code == 400
        assert message in response.json()["error"]["message"]
    assert client.get("/studio/api/jobs").json()["jobs"] == []


@pytest.mark.parametrize("path", ["jobs", "jobs/stop"])
def test_only_clients_with_the_token_change_something(client_of: Callable[..., Any], path: str) -> None:
    client = client_of(knows={})
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer "}):
        assert client.post(f"/studio/api/{path}", json={"number": 1}, headers=headers).status_code == 401
    other = {**KNOWS, "origin": "https://evil.example"}
    assert client.post(f"/studio/api/{path}", json={"number": 1}, headers=other).status_code == 403
    assert client_of().get("/studio/api/jobs").json()["models"] == list(TRAINED)


def test_a_name_that_is_taken_is_refused(client_of: Callable[..., Any]) -> None:
    response = client_of().post("/studio/api/jobs", json={"name": "bert"})
    assert response.status_code == 400
    assert "there is a bert already" in response.json()["error"]["message"]


def test_a_run_is_started_watched_and_stopped(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("The cat sat on the mat and looked at the dog.\n" * 200)
    jobs = Jobs(tmp_path, [tmp_path / "book.txt"])
    job = jobs.start(JobRequest(name="mine", models=["rnn"], text=1, budget="20min", tokenizer="characters"))
    try:
        metrics = tmp_path / "mine" / "metrics.jsonl"
        wait_until(lambda: not job.running or (metrics.exists() and metrics.read_text()), says=job.tail)
        assert job.running, job.tail()
        with pytest.raises(ValueError, match="there is a mine already"):
            jobs.start(JobRequest(name="mine"))
        (reported,) = jobs.summaries()
        assert str(tmp_path) not in str(reported)
        assert f"{tmp_path.name}/mine" in reported["command"]
        job.stop()
        wait_until(lambda: not job.running)
    finally:
        jobs.close()
    assert (tmp_path / "mine" / "last").is_dir()  # it saved, so it can be resumed
    assert jobs.find(1) is job
    with pytest.raises(ValueError, match="there is no job 2"):
        jobs.find(2)


def test_a_finished_work_holds_no_descriptor(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for number in range(2):
        job = jobs.start(JobRequest(name=f"bad{number}", budget="1steps", tokenizer="bpe:1"))  # refused at once
        wait_until(lambda job=job: not job.running)  # type: ignore[misc]
        assert "bpe:1" in job.tail()
    if before:
        assert len(os.listdir("/proc/self/fd")) == before
    jobs.close()
    assert list((tmp_path / ".studio").iterdir()) == []


def test_paths_in_what_a_work_prints_are_short(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "book.txt").write_text("some text")
    jobs = Jobs(tmp_path / "runs", [tmp_path / "book.txt"])
    long = str(tmp_path / "runs" / "mine")
    for printed, shown in (
        (f"wrote {long}/model.safetensors", "wrote runs/mine/model.safetensors"),
        (f"wrote {long[:9]}\n{long[9:]}", "wrote runs/mine"),
        (f"reading {tmp_path}/book.txt: 3%", "reading book.txt: 3%"),
        ('File "/usr/lib/python3/site.py", line 1', 'File "…/site.py", line 1'),
        ("error: /etc/passwd and/or https://example.org/a/b", "error: …/passwd and/or https://example.org/a/b"),
        ("2.5 bits/byte, 3 / 4", "2.5 bits/byte, 3 / 4"),
    ):
        assert jobs.shorten_paths(printed) == shown


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to know when a process was started")
def test_what_a_killed_studio_leaves_running_is_found_and_stopped(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "book.txt").write_text("The cat sat on the mat and looked at the dog.\n" * 200)
    asked = JobRequest(name="left", models=["rnn"], text=1, budget="20min", tokenizer="characters")
    code = (
        "import json, sys, time; from pathlib import Path; from lmlab.studio.jobs import JobRequest, Jobs;"
        "jobs = Jobs(Path(sys.argv[1]), [Path(sys.argv[3])]); jobs.start(JobRequest(**json.loads(sys.argv[2])));"
        "print(flush=True); time.sleep(1000)"
    )
    command = [
        sys.executable,
        "-c",
        code,
        str(tmp_path / "runs"),
        asked.model_dump_json(),
        str(tmp_path / "book.txt"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as studio:
        try:
            assert studio.stdout is not None
            studio.stdout.readline()
            beside = Jobs(tmp_path / "runs")
            assert [job.own for job in beside._jobs] == [False]  # its studio is there: it does not end with this one
            beside.close()
        finally:
            studio.kill()
    jobs = Jobs(tmp_path / "runs")
    try:
        (reported,) = jobs.summaries()
        assert (reported["name"], reported["running"]) == ("left", True)
        job = jobs.find(reported["number"])
        assert job.own
        metrics = tmp_path / "runs" / "left" / "metrics.jsonl"
        wait_until(lambda: not job.running or (metrics.exists() and metrics.read_text()), says=job.tail)
        job.stop()
        wait_until(lambda: not job.running, says=job.tail)
        assert (tmp_path / "runs" / "left" / "last").is_dir()
    finally:
        jobs.close()
    assert Jobs(tmp_path / "runs").summaries() == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to know when a process was started")
@pytest.mark.parametrize("lie", ["start", "command", "folder", "link", "nothing"])
def test_no_other_process_is_ever_taken_for_a_work(tmp_path: Path, lie: str) -> None:
    """The number of a process that has ended may be another process by now, and a record may be anybody's."""
    name = "mine"
    command = ["lmlab", "train", "rnn", "builtin", "-o", str(tmp_path / ("other" if lie == "folder" else name))]
    typed = ["lmlab", "list"] if lie == "command" else command
    code = "import time; print(flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", code, "-m", *typed], stdout=subprocess.PIPE) as innocent:
        try:
            assert innocent.stdout is not None
            innocent.stdout.readline()
            process = Process.find(innocent.pid)
            assert process is not None
            started = process.started if lie != "start" else process.started[:-1] + "x"
            reported = {"request": {"name": name}, "command": command, "pid": process.pid, "started": started}
            records = tmp_path / ".studio"
            (tmp_path / "elsewhere").mkdir()
            if lie == "link":
                records.symlink_to(tmp_path / "elsewhere")
            records.mkdir(exist_ok=True)
            (records / "mine.1.json").write_text(json.dumps({**reported, "studio": [1, "never"]}))
            found = [job.process for job in Jobs(tmp_path)._jobs]
            assert found == ([process] if lie == "nothing" else [])
            if lie == "start":
                process._replace(started=started).send(signal.SIGINT)
                assert process.running
        finally:
            innocent.kill()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to know when a process was started")
@pytest.mark.parametrize("studio_is_there", [True, False])
def test_what_is_left_of_an_ended_work_is_removed_with_its_studio(tmp_path: Path, studio_is_there: bool) -> None:
    here = Process.find(os.getpid())
    assert here is not None
    studio = [here.pid, here.started] if studio_is_there else [here.pid, "before"]
    reported = {"request": {"name": "mine"}, "command": [], "pid": here.pid, "started": "long ago", "studio": studio}
    (tmp_path / ".studio").mkdir()
    (tmp_path / ".studio" / "mine.1.json").write_text(json.dumps(reported))
    (tmp_path / ".studio" / "mine.1.log").write_text("what it has printed")
    assert Jobs(tmp_path).summaries() == []
    assert (tmp_path / ".studio" / "mine.1.log").exists() == studio_is_there


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_a_command_line_that_is_not_there_yet_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux shows an empty one between the start of a program and the set-up of its memory."""
    reads, read_text = iter(["", "python\0-m\0lmlab\0"]), Path.read_text

    def first_nothing(path: Path, *args: str, **options: str) -> str:
        return next(reads) if path.name == "cmdline" else read_text(path, *args, **options)

    process = Process.find(os.getpid())
    assert process is not None
    monkeypatch.setattr(Path, "read_text", first_nothing)
    assert process.command() == ["python", "-m", "lmlab"]
