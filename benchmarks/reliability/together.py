"""Commands beside others: trainers of one run, commands on one cache, SIGTERM, no network, and restarts by torchrun."""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.reliability.families import small_recipe, write_texts
from benchmarks.reliability.figures import Figure, Scale, shorten
from benchmarks.reliability.kills import result_of, train
from benchmarks.reliability.processes import Child, lmlab, now
from benchmarks.reliability.processes import run as run_child

NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of Linux."""
ENDED = (0, 130, 143, -signal.SIGTERM)
"""How a command may end after SIGTERM."""
TINY = ("--size", "tiny", "--tokenizer", "words", "--documents", "blank", "--device", "cpu")


def sharing(scale: Scale) -> Iterator[Figure]:
    """Two trainers that start on one run at the same time, and 50 trainers that fill one cache."""
    folder, wrong = scale.fresh("sharing"), []
    texts = write_texts(folder)
    recipe, rounds = small_recipe("gpt2", texts), scale.count(2, 20)
    run_child(lambda: train(recipe, folder / "whole"), log=folder / "log")
    expected = result_of(folder / "whole")
    for number in range(rounds):
        path = folder / f"run{number}"
        two = [Child(lambda path=path: train(recipe, path), log=folder / f"log{each}") for each in (0, 1)]  # type: ignore[misc]
        statuses = [each.wait() for each in two]
        said = [each.said() for each in two]
        refused = [each for status, each in zip(statuses, said, strict=True) if status == 2]
        if sorted(map(int, statuses)) not in ([0, 0], [0, 2]) or result_of(path) != expected:  # type: ignore[arg-type]
            wrong.append(f"round {number}: {statuses} {said}")
        elif not all("being trained by" in each or "already contains a run" in each for each in refused):
            wrong.append(f"round {number}: {refused}")
    result = f"{rounds} rounds: one trains to the same bits as alone; the other names its process, or finds it finished"
    yield Figure("two trainers on one run", rounds, result, shorten(wrong))

    wrong, many = [], scale.count(6, 50)
    os.environ["LMLAB_CACHE"], before = str(folder / "one cache"), os.environ["LMLAB_CACHE"]
    children = [
        Child(functools.partial(train, recipe, folder / f"c{each}"), log=folder / f"c{each}.log")
        for each in range(many)
    ]
    for number, child in enumerate(children):
        if child.wait() != 0 or result_of(folder / f"c{number}") != expected:
            wrong.append(f"{number}: {child.status} {child.said()[-200:]}")
    again = run_child(lambda: train(recipe, folder / "again"), log=folder / "log")
    if again.status != 0 or result_of(folder / "again") != expected:
        wrong.append(f"the cache is damaged: {again.said()[-200:]}")
    left = [each.name for each in (folder / "one cache").rglob("*") if re.search(r"\.(new|staged|tmp)\b", each.name)]
    wrong += [f"left in the cache: {left}"] if left else []
    os.environ["LMLAB_CACHE"] = before
    yield Figure("commands on one cache", many, f"{many} at the same time: all train to the same bits", shorten(wrong))


def make_runs(folder: Path) -> dict[str, Path]:
    """Texts and runs that commands use."""
    texts = write_texts(folder)
    for kind in ("gpt2", "bert", "transformer"):
        done = run_child(functools.partial(train, small_recipe(kind, texts), folder / kind), log=folder / "log")
        assert done.status == 0, done.said()
    (folder / "stars.tsv").write_text("".join(f"say {i} well\t{'good' if i % 2 else 'bad'}\n" for i in range(60)))
    return {kind: folder / kind for kind in ("gpt2", "bert", "transformer")} | {
        "text": texts / "en.txt",
        "stars": folder / "stars.tsv",
    }


def list_commands(at: dict[str, Path], out: Path) -> dict[str, tuple[object, ...]]:
    """One call of each kind of command, which writes into `out`."""
    train_words = ("train", "gpt2", at["text"], "-o", out / "run", "--budget", "12steps", *TINY)
    return {
        "train": (*train_words, "--set", "train.save_seconds=0"),
        "train ngram": ("train", "ngram", at["text"], "-o", out / "counts", "--tokenizer", "words"),
        "compare": ("compare", at["text"], "-o", out / "compared", "--models", "ngram,lstm", "--budget", "5steps"),
        "finetune": ("finetune", at["bert"], at["stars"], "-o", out / "stars", "--budget", "5steps"),
        "generate": ("generate", at["gpt2"], "say 1", "--tokens", "20"),
        "score": ("score", at["gpt2"], at["text"]),
        "next": ("next", at["gpt2"], "say 1"),
        "fill": ("fill", at["bert"], "say [MASK] and"),
        "translate": ("translate", at["transformer"], at["text"], "-o", out / "translated.txt"),
        "embed": ("embed", at["bert"], at["text"], "-o", out / "vectors.npy"),
        "tokenize": ("tokenize", at["gpt2"], "say 1"),
        "report": ("report", at["gpt2"], "-o", out / "report.html"),
        "convert": ("convert", at["gpt2"], out / "converted"),
        "average": ("average", at["gpt2"], "--last", 2, "-o", out / "averaged"),
        "cost": ("cost", "gpt2", "--size", "124M"),
        "list": ("list",),
        "doctor": ("doctor",),
        "inspect attention": ("inspect", "attention", at["gpt2"], "say 1 and 2"),
        "inspect surprisal": ("inspect", "surprisal", at["gpt2"], at["text"]),
        "serve": ("serve", at["gpt2"], "--port", 0),
        "studio": ("studio", at["text"].parent, "--port", 0),
    }


def sigterm(scale: Scale) -> Iterator[Figure]:
    """SIGTERM at random times of every command: it ends, without a traceback, a process or a temporary file left.

    Afterwards the same command succeeds; training is resumed.
    """
    folder, wrong, tried = scale.fresh("sigterm"), [], 0
    at, random, rounds = make_runs(folder), scale.random("sigterm"), scale.count(1, 5)
    names = ("train", "score", "serve") if scale.quick else tuple(list_commands(at, folder))
    for name in names:
        out = folder / "out"
        seconds = _seconds(name, at, out, folder)
        for _ in range(rounds):
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            words = list_commands(at, out)[name]
            child = lmlab(*words, log=folder / "log")
            child.wait(random.uniform(0, seconds))
            tried += child.status is None
            child.kill(signal.SIGTERM)
            wrong += [f"{name}: {each}" for each in _find_faults(child, out)]
            if name not in ("serve", "studio"):
                more = ("--resume",) if name in ("train", "compare", "finetune") else ()
                again = lmlab(*words, *more, log=folder / "again.log")
                if again.wait() != 0:
                    wrong.append(f"{name}: the same command then ends with {again.status}: {again.said()[-200:]}")
    result = f"{tried} times over {len(names)} commands: ended, nothing left behind, the same command succeeds"
    yield Figure("SIGTERM", tried, result, shorten(wrong))


def _seconds(name: str, at: dict[str, Path], out: Path, folder: Path) -> float:
    """How long a command takes; servers a second."""
    out.mkdir(exist_ok=True)
    begin, child = now(), lmlab(*list_commands(at, out)[name], log=folder / f"{name}.log")
    if name in ("serve", "studio"):
        while "http://" not in child.said() and child.wait(0.05) is None:
            pass
        child.kill(signal.SIGTERM)
    elif child.wait() != 0:
        raise RuntimeError(f"{name}: {child.said()[-300:]}")
    shutil.rmtree(out, ignore_errors=True)
    return now() - begin


def _find_faults(child: Child, out: Path) -> Iterator[str]:
    if child.status not in ENDED:
        yield f"status {child.status}: {child.said()[-200:]}"
    if "Traceback" in child.said():
        yield child.said()[-300:]
    left = [each.name for each in out.rglob("*") if re.search(r"\.(new|staged|tmp)$", each.name)]
    if left and child.status != -signal.SIGTERM:
        yield f"left {left}"
    time.sleep(0.05)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            session = int((process / "stat").read_text().rpartition(")")[2].split()[3])
        except (OSError, ValueError):
            continue
        if session == child.pid:
            yield f"process {process.name} is left"


def network(scale: Scale) -> Iterator[Figure]:
    """Every command in a network namespace that has only the loopback interface: it works, and asks for no other."""
    folder = scale.fresh("network")
    at = make_runs(folder)
    child = run_child(functools.partial(_without_network, at, folder, quick=scale.quick), log=folder / "network.log")
    said = child.said()
    if "no namespace" in said:
        yield Figure("no network", 1, "not measured: this process may not make a network namespace")
        return
    lines = [line for line in said.splitlines() if line.startswith("wrong: ")]
    wrong = [line.removeprefix("wrong: ") for line in lines] + ([said[-500:]] if child.status else [])
    done = said.count("works: ")
    yield Figure("no network", done, f"{done} commands work with only `lo`; packets without a route: 0", shorten(wrong))


def _without_network(at: dict[str, Path], folder: Path, *, quick: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_NETWORK) != 0:
        print("no namespace")
        return
    with socket.socket() as control:  # the loopback interface is up: SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP
        flags = struct.unpack("16sh", fcntl.ioctl(control, 0x8913, struct.pack("16sh", b"lo", 0)))[1]
        fcntl.ioctl(control, 0x8914, struct.pack("16sh", b"lo", flags | 1))
    before = _packets()
    with socket.socket() as other, socket.socket(type=socket.SOCK_DGRAM) as datagram:
        for each in (other, datagram):
            assert each.connect_ex(("192.0.2.1", 80)) != 0, "there is a network"
    assert _packets() > before, "attempts are counted"
    before, out = _packets(), folder / "out"
    for name in ("train", "generate", "serve") if quick else tuple(list_commands(at, out)):
        out.mkdir(exist_ok=True)
        child = lmlab(*list_commands(at, out)[name], log=folder / f"{name}.log")
        if name in ("serve", "studio"):
            while (found := re.search(r"http://([\w.]+):(\d+)", child.said())) is None and child.wait(0.05) is None:
                pass
            works = found is not None and socket.socket().connect_ex((found[1], int(found[2]))) == 0
            child.kill(signal.SIGTERM)
        else:
            works = child.wait() == 0
        attempts = _packets() - before
        before = _packets()
        fault = f"{attempts} packets without a route" if attempts else "" if works else child.said()[-300:]
        print(f"wrong: {name}: {' '.join(fault.split())}" if fault else f"works: {name}", flush=True)


def _packets() -> int:
    """How many packets had no route in this namespace."""
    lines = [line.split() for line in Path("/proc/self/net/snmp").read_text().splitlines() if line.startswith("Ip:")]
    return int(dict(zip(*lines, strict=True))["OutNoRoutes"])


def restarts(scale: Scale) -> Iterator[Figure]:
    """One of two processes is killed again and again; torchrun starts both anew, and the run ends with the same bits.

    Each kill is at a random time after a new checkpoint.
    """
    folder, wanted, random, done = scale.fresh("restarts"), scale.count(1, 20), scale.random("restarts"), 0
    texts = write_texts(folder)
    steps = scale.count(30, 2500)
    words = ("train", "gpt2", texts / "en.txt", "--budget", f"{steps}steps", "--exact", *TINY)
    settings = ("train.batch=4", "train.save_seconds=0.5", "train.micro_batches=2", "model.dropout=0.1")
    words = (*words, *(word for each in settings for word in ("--set", each)))
    whole = lmlab(*words, "-o", folder / "whole", log=folder / "whole.log")
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", str(wanted))
    command = [sys.executable, *torchrun, "-m", "lmlab", *map(str, words), "-o", str(folder / "run"), "--resume"]
    with open(folder / "run.log", "wb") as log:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        started = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    while started.poll() is None and done < wanted:
        before = _checkpoint(folder / "run")
        while started.poll() is None and _checkpoint(folder / "run") == before:
            time.sleep(0.05)
        time.sleep(random.uniform(0, 0.5))
        if workers := _workers(started.pid):
            os.kill(random.choice(workers), signal.SIGKILL)
            done += 1
    status = started.wait()
    whole.wait()
    wrong = [] if status == whole.status == 0 else [f"ended with {status}: {(folder / 'run.log').read_text()[-400:]}"]
    wrong += [f"{name} differs" for name in [*_differences(folder / "run", folder / "whole")][:3]]
    wrong += [f"only {done} of {wanted} kills before the end"] if done < wanted else []
    result = (
        f"{done} kills of one of 2 processes, {done} restarts; weights and optimizer equal to one process, bit for bit"
    )
    yield Figure("restarts by torchrun", done, result, shorten(wrong))


def _differences(run: Path, other: Path) -> Iterator[str]:
    """The tensors of weights and optimizer that differ; each micro-batch seeds its random numbers anew."""
    from lmlab.runs.storage import read_tensors

    for name in ("model.safetensors", "last/model.safetensors", "last/training.safetensors"):
        one, two = (read_tensors(each / name) for each in (run, other))
        yield from (f"{name}: {each}" for each in one.keys() ^ two.keys())
        yield from (f"{name}: {each}" for each in one if each != "random.cpu" and not one[each].equal(two[each]))


def _checkpoint(run: Path) -> Any:
    try:
        return (run / "last" / "manifest.json").read_bytes()
    except OSError:
        return None


def _workers(parent: int) -> list[int]:
    """The processes that torchrun has started."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            own = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if own == parent and b"RANK=" in (process / "environ").read_bytes():
                found.append(int(process.name))
        except (OSError, ValueError):
            continue
    return found
