"""lmlab studio: runs in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.options import AllowHost, Host, Port, Token, TrainingText


def studio(
    runs: Annotated[Path, typer.Argument(metavar="RUNS", help="A folder of runs, or one run directory.")] = Path(
        "runs"
    ),
    port: Port = 8080,
    host: Host = "127.0.0.1",
    allow_host: AllowHost = None,
    lecture: Annotated[
        Path | None, typer.Option(help="TOML file of views to show. (default: lecture.toml in RUNS)")
    ] = None,
    training_text: TrainingText = None,
    data: Annotated[list[Path] | None, typer.Option(help="Data set for minimal pairs or bias; repeatable.")] = None,
    allow_data: Annotated[
        list[Path] | None, typer.Option(help="Folder whose held-out texts may be read; repeatable.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that clients must send. (default: LMLAB_TOKEN)")
    ] = None,
    token: Token = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Allow every user of this machine.")] = False,
) -> None:
    """Look at runs in the browser: next words, beams, attention.

    Examples:

      lmlab studio runs

      lmlab studio runs/demo --port 8080 --lecture monday.toml

      lmlab studio runs --training-text book.txt --data BLiMP.zip --data crows_pairs_anonymized.csv

      lmlab studio runs --allow-data corpora --token-file token.txt

      lmlab studio runs --host 0.0.0.0 --allow-host lab.example.org

    Every run in the folder is listed, whatever its model; nothing is loaded from outside. Models can be trained on a
    --training-text from the browser. Data sets are pairs.tsv, BLiMP.zip, CrowS-Pairs or Winogender, also those in
    RUNS/sets. Held-out text is read from RUNS, --training-text, --data and --allow-data. Ctrl-C ends it.
    """
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ValueError("the studio needs FastAPI and uvicorn: pip install 'lmlab[serve]'") from None
    import secrets
    import signal
    import socket

    from lmlab.serve.access_token import find_token, make_link
    from lmlab.serve.guard import is_loopback
    from lmlab.serve.http_protocol import QuietServer, make_config
    from lmlab.studio.app import make_app
    from lmlab.studio.jobs import Jobs
    from lmlab.studio.lecture import read_lecture
    from lmlab.studio.run_store import RunStore
    from lmlab.studio.workers import Workers

    if no_token and (token or token_file):
        raise ValueError("--no-token and a token are both given: leave one of them out")
    if no_token and not is_loopback(host):
        raise ValueError(f"--host {host}: other machines could use the studio; leave out --no-token")
    key = None if no_token else find_token(option=token, file=token_file) or secrets.token_urlsafe(16)
    if lecture is not None:
        read_lecture(lecture)
    jobs, workers = Jobs(RunStore(runs).folder, [Path(each) for each in training_text or []]), Workers()
    app = make_app(
        runs,
        token=key,
        host=host,
        names=allow_host or [],
        talk=lecture,
        data=data or [],
        allowed=allow_data or [],
        jobs=jobs,
        workers=workers,
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)  # who comes before the server is ready waits
    except OSError as error:
        raise ValueError(f"--port {port} on {host} cannot be used: {error.strerror}; choose another") from None
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}"
    print(f"The studio is open: {make_link(address, key) if key else address + '/'}", flush=True)
    if key is None:
        print("no token: every user of this machine can read the runs and start training", flush=True)
    print("Ctrl-C ends it.", flush=True)
    server = QuietServer(make_config(app, log_level="critical", timeout_graceful_shutdown=2))
    if hasattr(signal, "SIGHUP"):  # the terminal is closed
        signal.signal(signal.SIGHUP, server.handle_exit)
    try:
        server.run(sockets=[listening])
    finally:  # also where a second Ctrl-C ended the server at once
        workers.close()
        jobs.close()
