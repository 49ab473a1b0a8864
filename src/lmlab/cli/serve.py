"""lmlab serve: runs behind the API that people's tools speak."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

OPEN_TO_ALL = "no token: every user of this machine can send requests; set LMLAB_TOKEN or --token-file to need one"


def serve(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories; a run's id is its name.")],
    host: Annotated[str, typer.Option(help="Address to listen on; others than this machine's need a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the API key that clients must send. (default: LMLAB_TOKEN)"),
    ] = None,
    token: Annotated[str | None, typer.Option(help="Deprecated: ps shows it; use LMLAB_TOKEN or --token-file.")] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Further host name of the server (may be given several times).")
    ] = None,
    max_batch: Annotated[int, typer.Option(min=2, max=256, help="Texts that are continued at once.")] = 32,
    max_queue: Annotated[int, typer.Option(min=1, help="Texts that may wait; more are refused with 429.")] = 1024,
    max_tokens: Annotated[int, typer.Option(min=1, max=2**20, help="Tokens to write for one text, at most.")] = 4096,
    prefix_cache: Annotated[
        int, typer.Option(min=0, max=2**20, help="MiB for prompt beginnings read before, per run; 0: off.")
    ] = 256,
    drain: Annotated[
        float, typer.Option(min=0, max=60, help="Seconds that texts in the writing have to finish at the end.")
    ] = 8.0,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Pass over unknown models, fields and odd values, for test suites.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Serve runs behind the OpenAI completions API.

    Any run: an n-gram, an LSTM or a GPT-2 continues texts, a masked model fills blanks, a translator translates, a
    fine-tuned run predicts. Open the address in a browser to try it.

    Examples:

      lmlab serve runs/book

      lmlab serve runs/book runs/stars --port 9000 --max-batch 16

      lmlab serve runs/book --host 0.0.0.0 --token-file token.txt --allow-host lab.example.org

      curl http://127.0.0.1:8000/v1/completions -H "Content-Type: application/json" -d '{"prompt": "Once", "seed": 1}'

    The same seed gives the same text, whatever else is being written. Ctrl-C, or SIGTERM, lets texts in the writing
    finish for up to --drain seconds.
    """
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ValueError("the server needs FastAPI, uvicorn and others: pip install 'lmlab[serve]'") from None
    from lmlab.messages import printable
    from lmlab.serve.access_token import find_token
    from lmlab.serve.guard import Rules, allowed_hosts, is_loopback

    key = find_token(option=token, file=token_file)
    if not is_loopback(host) and key is None:
        raise ValueError(
            f"host = {host}: others could use the server; set LMLAB_TOKEN, or give a --token-file, or leave --host out"
        )
    hosts = allowed_hosts([host, *(allow_host or ())])
    names = [run.resolve().name for run in runs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(
            f"several runs are named {printable(', '.join(twice))}: a run's id is its name; rename a folder"
        )

    from lmlab.cli.console import Console
    from lmlab.language_model import load
    from lmlab.serve.app import make_app
    from lmlab.serve.served import Limits, Runs, serve_run
    from lmlab.serve.server import make_server, share_threads
    from lmlab.training.devices import choose_device

    limits = Limits(
        rows=max_batch, queue=max_queue, tokens=max_tokens, prefix_bytes=prefix_cache * 2**20, lenient=lenient
    )
    place = choose_device(device)
    threads = share_threads(len(runs))
    models = {name: load(run, device=place) for name, run in zip(names, runs, strict=True)}
    served = {name: serve_run(name, lm, limits=limits, threads=threads) for name, lm in models.items()}
    every = Runs(served=served, limits=limits)
    app = make_app(every, rules=Rules(hosts=hosts, token=key))
    server = make_server(app, every, host=host, port=port, drain=drain)
    console = Console(highlight=False, stderr=True)

    def tell(address: str) -> None:
        for name, served in every.served.items():
            console.print(printable(f"{name}: {', '.join(served.abilities)}"), style="dim", markup=False)
        if key is None:
            console.print(OPEN_TO_ALL, style="dim", markup=False)
        console.print(f"serving at {address}  (Ctrl-C ends it)", markup=False)

    server.started_at = tell
    server.run()
    if not server.started:
        raise typer.Exit(2)
