"""What works on this machine: checks that need no network and a second or two; of extras only the version is looked up.

A check is a function without arguments that yields findings. To add one, add it to `CHECKS`.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

from lmlab import __version__
from lmlab.data.readers.files import cache_folder

State = Literal["ok", "missing", "problem"]
"""A feature that works, one that is optional and not there, and one that nothing works without."""
OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)
"""The versions that are tested."""
LOW_DISK, LOW_MEMORY = 2 << 30, 1 << 30
"""Bytes below which a training run is likely to fail."""
EXTRAS = {
    "serve": "lmlab serve and lmlab studio",
    "vision": "pictures: PNG, JPEG, WebP, GIF",
    "audio": "recordings in FLAC, OGG and MP3; WAV needs nothing",
    "music": "MIDI files",
    "rl": "environments of gymnasium for lmlab act",
    "eval": "BLEU and chrF",
    "report": "charts as PNG; SVG needs nothing",
    "analysis": "t-SNE of word senses",
    "elmo": "the authors' weights of ELMo (HDF5)",
    "track": "TensorBoard events",
    "energy": "energy by codecarbon, and meters of NVIDIA GPUs",
}
"""The extras for users, and what each gives; those for developers are not listed."""
FEATURES = {
    "avx2": ("avx2",),
    "avx512": ("avx512f",),
    "vnni": ("avx512_vnni", "avx_vnni"),
    "bf16": ("avx512_bf16", "amx_bf16", "bf16"),
    "amx": ("amx_tile",),
    "neon": ("asimd",),
}
"""Instruction sets that PyTorch uses, by the flags of the processor: half the memory with bf16, four times the speed of
int8 with VNNI."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "firefox", "safari", "microsoft-edge")


class Finding(NamedTuple):
    """One line of `lmlab doctor`."""

    group: str
    name: str
    state: State
    value: str
    """What was found."""
    remedy: str = ""
    """What to do or to install where something is missing."""


def examine() -> list[Finding]:
    """All findings; a check that fails is a problem of its own, and the others go on."""
    found: list[Finding] = []
    for check in CHECKS:
        try:
            found += check()
        except Exception as error:
            name = check.__name__.removeprefix("check_")
            found.append(Finding("lmlab", name, "problem", f"{type(error).__name__}: {error}", "report this line"))
    return found


def check_packages() -> Iterator[Finding]:
    """Python, lmlab and the packages that it always needs."""
    version = platform.python_version()
    tested = OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON
    names = [".".join(map(str, each)) for each in (OLDEST_PYTHON, NEWEST_PYTHON)]
    yield Finding(
        "Python",
        "Python",
        "ok" if tested else "problem",
        f"{version} ({sys.executable})",
        "" if tested else f"install Python {names[0]} to {names[1]}",
    )
    yield Finding("Python", "lmlab", "ok", f"{__version__} ({Path(__file__).parents[1]})")
    for requirement in _requirements(""):
        yield _of_package("Python", requirement)


def _of_package(group: str, requirement: str) -> Finding:
    name, lowest = _parse(requirement)
    version = _version(name)
    if version is None or _numbers(version) < _numbers(lowest):
        found = f"{version}, and at least {lowest} is needed" if version else "not installed"
        return Finding(group, name, "problem", found, f"pip install '{name}>={lowest}'")
    return Finding(group, name, "ok", version)


def check_torch() -> Iterator[Finding]:
    """Whether PyTorch can be imported, what it computes with, and GPUs."""
    try:
        import torch
    except Exception as error:  # a library that is missing or was built for another machine
        yield Finding(
            "Computing", "torch", "problem", str(error).splitlines()[0], "pip install --force-reinstall torch"
        )
        return
    yield Finding("Computing", "PyTorch's kernels", "ok", torch.backends.cpu.get_cpu_capability())
    threads, allowed = torch.get_num_threads(), len(os.sched_getaffinity(0)) if _is_linux() else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS")
    few = threads < allowed and limit is None
    yield Finding(
        "Computing",
        "threads",
        "ok",
        f"{threads} of {allowed} processors" + (f" (OMP_NUM_THREADS={limit})" if limit else ""),
        f"set OMP_NUM_THREADS={allowed} to use all" if few else "",
    )
    yield _gpu()
    yield _kernels()


def _kernels() -> Finding:
    """Whether the choice of kernels was measured on this machine."""
    from lmlab.layers.kernels import calibration

    if (found := calibration.load(cache_folder())) is None:
        return Finding("Computing", "choice of kernels", "ok", "defaults", "to measure it: lmlab doctor --calibrate")
    figures = ", ".join(f"{name} {value:,}" for name, value in found._asdict().items())
    return Finding("Computing", "choice of kernels", "ok", f"measured: {figures}")


def calibrate_kernels() -> None:
    """Measure on this machine which kernels are the fastest, and write it into the cache."""
    from lmlab.layers.kernels import calibration, linear

    calibration.save(linear.calibrate(), cache_folder())


def _gpu() -> Finding:
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return Finding("Computing", "GPU", "ok", f"{', '.join(names)} (CUDA {torch.version.cuda})")
    if torch.backends.mps.is_available():
        return Finding("Computing", "GPU", "ok", "Apple (mps)")
    if shutil.which("nvidia-smi"):
        reason = f"PyTorch {torch.__version__} cannot use the NVIDIA GPU of this machine"
        return Finding("Computing", "GPU", "missing", reason, "pip install torch (without +cpu); see pytorch.org")
    return Finding("Computing", "GPU", "missing", "none; everything runs on the CPU")


def check_processes() -> Iterator[Finding]:
    """What training in several processes needs."""
    from lmlab.training.distributed.checking import check

    for each in check():
        yield Finding("Several processes", each.name, "ok" if each.works else "problem", each.value, each.remedy)


def check_processor() -> Iterator[Finding]:
    """The processor and its instruction sets."""
    name: str = platform.processor() or platform.machine()
    flags: set[str] = set()
    if (path := Path("/proc/cpuinfo")).is_file():
        found = re.findall(r"^([^\t:]+?)\s*:\s*(.*)$", path.read_text(errors="replace"), flags=re.MULTILINE)
        lines: dict[str, str] = dict(found)
        name = lines.get("model name", name)
        flags = set(lines.get("flags", lines.get("Features", "")).split())
    has = [feature for feature, names in FEATURES.items() if flags.intersection(names)]
    yield Finding("Computing", "processor", "ok", f"{name}; {', '.join(has) or 'no known instruction sets'}")


def check_room() -> Iterator[Finding]:
    """Memory, and disk space where runs and the cache are written."""
    from lmlab.training.devices import free_memory

    if (free := free_memory()) is not None:
        few = free < LOW_MEMORY
        remedy = "choose --size tiny, or close other programs" if few else ""
        yield Finding("Room", "memory", "problem" if few else "ok", f"{_gigabytes(free)} free", remedy)
    for name, folder in (("this folder", Path.cwd()), ("cache", cache_folder())):
        there = next(each for each in (folder, *folder.parents) if each.exists())
        free = shutil.disk_usage(there).free
        remedy = "" if free >= LOW_DISK else "make room"
        if not os.access(there, os.W_OK):
            remedy = "make it writable" if name == "this folder" else "set LMLAB_CACHE to a folder that is writable"
        value = f"{_gigabytes(free)} free" + (f" ({folder})" if name == "cache" else "")
        yield Finding("Room", name, "problem" if remedy else "ok", value, remedy)
    if data := os.environ.get("LMLAB_DATA"):
        if Path(data).is_dir():
            yield Finding("Room", "LMLAB_DATA", "ok", data)
        else:
            yield Finding("Room", "LMLAB_DATA", "missing", f"{data} does not exist", "set it to a folder, or unset it")


def check_extras() -> Iterator[Finding]:
    """Each extra, what it gives, and the line that installs it."""
    for extra, gives in EXTRAS.items():
        found = [_of_package("Optional features", each) for each in _requirements(extra)]
        if any(each.state == "problem" for each in found):
            yield Finding("Optional features", extra, "missing", gives, f"pip install 'lmlab[{extra}]'")
        else:
            versions = ", ".join(f"{each.name} {each.value}" for each in found)
            yield Finding("Optional features", extra, "ok", f"{gives} ({versions})")


def check_programs() -> Iterator[Finding]:
    """Programs that some features call."""
    compiler = next((name for name in (os.environ.get("CXX", ""), "g++", "clang++") if name and shutil.which(name)), "")
    yield _program("C++ compiler", compiler, "train.compile (torch.compile)", "g++")
    kenlm = all(map(shutil.which, ("cmake", "git"))) and compiler
    yield _program(
        "cmake and git", "cmake, git" if kenlm else "", "KenLM, with which n-grams are compared", "cmake git"
    )
    browser = next(filter(shutil.which, BROWSERS), "") or ("safari" if sys.platform == "darwin" else "")
    yield _program("browser", browser, "lmlab studio on this machine; another machine's browser will do", "chromium")


def _program(name: str, found: str, gives: str, package: str) -> Finding:
    if found:
        return Finding("Programs", name, "ok", f"{found}: {gives}")
    return Finding("Programs", name, "missing", gives, f"apt-get install {package}" if _is_linux() else "install it")


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    check_packages,
    check_processor,
    check_torch,
    check_processes,
    check_room,
    check_extras,
    check_programs,
)


def _requirements(extra: str) -> list[str]:
    """What the package needs, always ("") or for an extra, from its metadata."""
    found = []
    for line in metadata.requires("lmlab") or ():
        requirement, _, marker = line.partition(";")
        named = re.search(r"""extra\s*==\s*['"]([\w-]+)['"]""", marker)
        if (named[1] if named else "") == extra:
            found.append(requirement.strip())
    return found


def _parse(requirement: str) -> tuple[str, str]:
    """The name of a package, and the oldest version that will do."""
    name = re.match(r"[\w.-]+", requirement)
    lowest = re.search(r">=\s*([\w.]+)", requirement)
    return name[0] if name else requirement, lowest[1] if lowest else "0"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", version.partition("+")[0])[:3])


def _gigabytes(size: int) -> str:
    return f"{size / (1 << 30):,.1f} GB"


def _is_linux() -> bool:
    return sys.platform.startswith("linux")
