"""lmlab studio: runs in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def studio(
    runs: Annotated[
        Path, typer.Argument(metavar="RUNS", help="A folder with runs in it, or one run directory.")
    ] = Path("runs"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8080,
    host: Annotated[
        str, typer.Option(help="The address to listen on; any but this machine's own needs --token.")
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A further name under which the studio may be asked (may be given several times)."),
    ] = None,
    lecture: Annotated[
        Path | None, typer.Option(help="A TOML file of views to show in order. (default: lecture.toml in RUNS)")
    ] = None,
    text: Annotated[
        list[Path] | None,
        typer.Option(help="A text that runs may be trained on from the browser (may be given several times)."),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="A ready set for Minimal pairs or Bias: pairs.tsv, BLiMP.zip, CrowS-Pairs, Winogender (may be given "
            "several times; so are those in RUNS/sets)."
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(help="What allows to start and stop training. (default: a new one, in the printed address)"),
    ] = None,
) -> None:
    """Look at runs in the browser: next words, beams, attention.

    Examples:

      lmlab studio runs

      lmlab studio runs/demo --port 8080 --lecture monday.toml

      lmlab studio runs --text book.txt --data BLiMP.zip --data crows_pairs_anonymized.csv

      lmlab studio runs --host 0.0.0.0 --token "$(openssl rand -hex 16)" --allow-host lab.example.org

    Every run under the folder is there, whatever its family; nothing is loaded from outside. Ctrl-C ends it.
    """
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ValueError("the studio needs FastAPI and uvicorn: pip install 'lmlab[serve]'") from None
    import re
    import secrets
    import signal
    import socket

    from lmlab.serve.connections import QuietServer, make_config
    from lmlab.serve.guard import is_loopback
    from lmlab.studio.app import make_app
    from lmlab.studio.lecture import read_lecture
    from lmlab.studio.shelf import Shelf
    from lmlab.studio.works import Works

    if not is_loopback(host) and not token:
        raise ValueError(f"host = {host}: others could use the studio; give a --token that they must know")
    if token is not None and not re.fullmatch(r"[\w-]{8,200}", token):
        raise ValueError("token: give 8 or more letters, digits, - or _, for instance those of  openssl rand -hex 16")
    if lecture is not None:
        read_lecture(lecture)
    token = token or secrets.token_urlsafe(16)
    works = Works(Shelf(runs).folder, text or [])
    app = make_app(runs, token=token, host=host, names=allow_host or [], talk=lecture, data=data or [], works=works)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)  # who comes before the server is ready waits
    except OSError as error:
        raise ValueError(f"--port {port} on {host} cannot be used: {error.strerror}; choose another") from None
    shown = f"[{host}]" if ":" in host else host
    print(f"The studio is open: http://{shown}:{listening.getsockname()[1]}/#token={token}", flush=True)
    print("Ctrl-C ends it.", flush=True)
    server = QuietServer(make_config(app, log_level="critical", timeout_graceful_shutdown=2))
    if hasattr(signal, "SIGHUP"):  # the terminal is closed
        signal.signal(signal.SIGHUP, server.handle_exit)
    try:
        server.run(sockets=[listening])
    finally:
        works.close()  # also where a second Ctrl-C ended the server at once
