"""What several processes need of a machine, checked before they wait for each other in vain."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lmlab.training.distributed.world import World

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""The environment variables that name the network interface."""


class Check(NamedTuple):
    """One thing that was checked."""

    name: str
    works: bool
    value: str  # what was found
    remedy: str = ""  # what to do if it does not work


def check() -> list[Check]:
    """What several processes need of this machine: torch.distributed, an address, an interface and a port.

    The address and the port are those of MASTER_ADDR and MASTER_PORT, if they are set, as torchrun has them.
    """
    return [*_check_torch(), *_check_interfaces(), _check_address(), *_check_port()]


def _check_torch() -> Iterator[Check]:
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        yield Check("gloo", False, "this build of torch has none", "pip install --force-reinstall torch")
        return
    backends = ["gloo", *(["nccl"] if dist.is_nccl_available() else [])]
    yield Check("torch.distributed", True, f"{', '.join(backends)}; lmlab train … --processes N")


def _check_interfaces() -> Iterator[Check]:
    known = [name for _, name in socket.if_nameindex()]
    for variable in INTERFACES:
        if (wanted := os.environ.get(variable)) is not None:
            works = wanted in known
            remedy = "" if works else f"set {variable} to one of {', '.join(known)}, or unset it"
            yield Check(variable, works, wanted if works else f"there is no interface {wanted}", remedy)


def _check_address() -> Check:
    """The address of this machine for others: without one, processes of several machines do not find each other."""
    name = socket.gethostname()
    try:
        address = socket.getaddrinfo(name, None, family=socket.AF_INET)[0][4][0]
    except OSError:
        remedy = f"add {name} to /etc/hosts, or set {INTERFACES[0]} to the interface between the machines"
        return Check("address", False, f"the name {name} has no address", remedy)
    alone = str(address).startswith("127.")
    hint = f" (this machine only; for several machines set {INTERFACES[0]})" if alone else ""
    return Check("address", True, f"{name} is {address}{hint}")


def _check_port() -> Iterator[Check]:
    """Whether the port of the first machine is free there, and can be reached from the others."""
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "29500")
    if address is None:
        return
    if not port.isdigit() or not 0 < int(port) < 2**16:
        yield Check("port", False, f"MASTER_PORT={port}", "give a number from 1 to 65535")
        return
    where = f"{address}:{port}"
    try:
        with socket.create_server((address, int(port))):
            yield Check("port", True, f"{where} is free on this machine, which is the first")
        return
    except OSError as error:
        own = error
    try:
        with socket.create_connection((address, int(port)), timeout=5):
            yield Check("port", True, f"{where} answers")
    except OSError as error:
        remedy = "start the first machine, open the port in its firewall, or choose another --master-port"
        yield Check("port", False, f"{where}: {error.strerror or error} ({own.strerror or own})", remedy)


def check_versions(world: World) -> None:
    """Raise a ValueError in all processes if they do not run the same versions."""
    import torch

    from lmlab import __version__

    own = {"lmlab": __version__, "torch": torch.__version__, "Python": ".".join(map(str, sys.version_info[:2]))}
    hosts, everyone = world.gather(platform.node()), world.gather(own)
    for rank, (host, theirs) in enumerate(zip(hosts, everyone, strict=True)):
        for name, version in theirs.items():
            first = everyone[0][name]
            if version != first:
                raise ValueError(
                    f"process {rank} on {host} has {name} {version}, and process 0 has {first}: install the same "
                    "versions on all machines"
                )


def check_shared(path: Path, world: World) -> None:
    """Raise a ValueError in all processes if one of them does not see the run that the first has written."""
    world.gather(None)  # it is written now
    everyone = world.gather([platform.node(), (path / "recipe.json").is_file()])
    if missing := [host for host, sees in everyone if not sees]:
        raise ValueError(
            f"{path} is not seen on {missing[0]}: the run must be in a folder that all machines share, by the same path"
        )
