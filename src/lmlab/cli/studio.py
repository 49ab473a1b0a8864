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
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Further host name of the studio (may be given several times).")
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
    allow_data: Annotated[
        list[Path] | None,
        typer.Option(
            help="A folder from which the held-out text of runs may be read, if it is not in the cache (may be given "
            "several times; RUNS, --text and --data are allowed)."
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token. (default: LMLAB_TOKEN, or else a new token)")
    ] = None,
    token: Annotated[str | None, typer.Option(help="Deprecated: ps shows it; use LMLAB_TOKEN or --token-file.")] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Let every user of this machine in, without a token.")
    ] = False,
) -> None:
    """Look at runs in the browser: next words, beams, attention.

    Examples:

      lmlab studio runs

      lmlab studio runs/demo --port 8080 --lecture monday.toml

      lmlab studio runs --text book.txt --data BLiMP.zip --data crows_pairs_anonymized.csv

      lmlab studio runs --allow-data corpora --token-file token.txt

      lmlab studio runs --host 0.0.0.0 --allow-host lab.example.org

    Every run under the folder is there, whatever its family; nothing is loaded from outside. Ctrl-C ends it.
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
        raise ValueError(f"host = {host}: everybody who reaches it could use the studio; leave --no-token out")
    key = None if no_token else find_token(option=token, file=token_file) or secrets.token_urlsafe(16)
    if lecture is not None:
        read_lecture(lecture)
    jobs, workers = Jobs(RunStore(runs).folder, text or []), Workers()
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
