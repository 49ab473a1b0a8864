"""Which slow clients plain uvicorn drops, with all of its own limits, and which lmlab's connections do.

    python benchmarks/slow_clients.py [--clients 200] [--seconds 45]

Half of the clients send half of a head, half never read an answer of 4 MB. Both servers have the same options of
uvicorn (`lmlab.serve.http_protocol.make_config`) and differ in the protocol class alone.
"""

from __future__ import annotations

import argparse
import socket
import threading
import time
from typing import Any

import uvicorn

from lmlab.serve.guard import Guard, Rules
from lmlab.serve.http_protocol import make_config

HEAD = b"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n"


async def large(scope: Any, receive: Any, send: Any) -> None:
    """An answer that no buffer of the system holds."""
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(64):
        await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def serve(*, plain: bool) -> tuple[uvicorn.Server, int]:
    config = make_config(Guard(large, Rules()), host="127.0.0.1", port=0, lifespan="off")
    if plain:
        config.http = "h11"
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    return server, server.servers[0].sockets[0].getsockname()[1]


def connect(port: int, request: bytes) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    connection.sendall(request)
    return connection


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=45.0)
    asked = parser.parse_args()
    print("| server | clients | held after | dropped |\n|---|---|---|---|")
    for plain in (True, False):
        for name, request in (("half-sent heads", HEAD), ("clients that never read", HEAD + b"\r\n")):
            server, port = serve(plain=plain)
            held = [connect(port, request) for _ in range(asked.clients // 2)]
            time.sleep(asked.seconds)
            left = len(server.server_state.connections)
            kind = "plain uvicorn" if plain else "lmlab"
            print(f"| {kind} | {len(held)} {name} | {asked.seconds:g} s: {left} | {len(held) - left} |", flush=True)
            server.should_exit = server.force_exit = True
            for connection in held:
                connection.close()


if __name__ == "__main__":
    main()
