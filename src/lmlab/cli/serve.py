"""lmlab serve: runs behind the API that people's tools speak."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.options import AllowHost, Device, Host, Port, Token, Weights

OPEN_TO_ALL = "no token: every user of this machine can send requests; set LMLAB_TOKEN or --token-file to need one"


def serve(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories; the model id is the name.")],
    host: Host = "127.0.0.1",
    port: Port = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="API key that clients must send, in a file. (default: LMLAB_TOKEN)")
    ] = None,
    token: Token = None,
    allow_host: AllowHost = None,
    max_batch: Annotated[int, typer.Option(min=2, max=256, help="Maximum batch size.")] = 32,
    max_queue: Annotated[int, typer.Option(min=1, help="Maximum number of waiting texts; then 429.")] = 1024,
    max_tokens: Annotated[int, typer.Option(min=1, max=2**20, help="Largest max_tokens of a request.")] = 4096,
    prefix_cache: Annotated[int, typer.Option(min=0, max=2**20, help="Prefix cache of each run in MiB; 0: off.")] = 256,
    drain: Annotated[
        float, typer.Option(min=0, max=60, help="Seconds for running requests to finish at shutdown.")
    ] = 8.0,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Ignore unknown models and fields, for test suites.")
    ] = False,
    device: Device = "auto",
    weights: Weights = "fp32",
) -> None:
    """Serve runs behind the OpenAI completions API.

    Any run: an n-gram, an LSTM or a GPT-2 continues texts, a masked model fills masks, a translator translates, a
    fine-tuned run predicts. Open the address in a browser to try it.

    Examples:

      lmlab serve runs/book

      lmlab serve runs/book runs/stars --port 9000 --max-batch 16

      lmlab serve runs/book --host 0.0.0.0 --token-file token.txt --allow-host lab.example.org

      curl http://127.0.0.1:8000/v1/completions -H "Content-Type: application/json" -d '{"prompt": "Once", "seed": 1}'

    The same seed gives the same text, whatever the other requests are. Ctrl-C or SIGTERM lets running requests finish
    for up to --drain seconds. A --host that other machines reach needs a token.
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
            f"--host {host}: other machines could use the server; set LMLAB_TOKEN, give --token-file, or omit --host"
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
    found_device = choose_device(device)
    threads = share_threads(len(runs))
    models = {name: load(run, device=found_device, weights=weights) for name, run in zip(names, runs, strict=True)}
    served = {name: serve_run(name, lm, limits=limits, threads=threads) for name, lm in models.items()}
    every = Runs(served=served, limits=limits)
    app = make_app(every, rules=Rules(hosts=hosts, token=key))
    server = make_server(app, every, host=host, port=port, drain=drain)
    console = Console(highlight=False, stderr=True)

    def show_address(address: str) -> None:
        for name, served in every.served.items():
            console.print(printable(f"{name}: {', '.join(served.abilities)}"), style="dim", markup=False)
        if key is None:
            console.print(OPEN_TO_ALL, style="dim", markup=False)
        console.print(f"serving at {address}  (Ctrl-C ends it)", markup=False)

    server.started_at = show_address
    server.run()
    if not server.started:
        raise typer.Exit(2)
