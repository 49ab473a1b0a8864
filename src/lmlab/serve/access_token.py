"""The access token: where it is read from, what a request sends of it, and how the two are compared.

A token on the command line is shown to every user of the machine by `ps`, so it is read from the environment or from a
file. A browser sends it once, in the link that was printed, and has a cookie from then on.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
import stat
import warnings
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode

VARIABLE = "LMLAB_TOKEN"
ALLOWED = re.compile(r"[!-~]{8,200}")
"""What can be sent in a header, a link and a cookie."""
MOST_BYTES = 4096
"""Of a token file."""


def find_token(*, option: str | None = None, file: Path | None = None) -> str | None:
    """The token of --token-file, --token or LMLAB_TOKEN, in this order; None where none of them is given."""
    if option is not None and file is not None:
        raise ValueError("--token and --token-file are both given: leave one of them out")
    if file is not None:
        return _check(read_token_file(file), f"--token-file {file}")
    if option is not None:
        warnings.warn(
            f"--token shows the token to every user of this machine (ps); set {VARIABLE} or use --token-file. "
            "--token will be removed in the next version",
            stacklevel=2,
        )
        return _check(option, "--token")
    given = os.environ.get(VARIABLE)
    return None if given is None else _check(given, VARIABLE)


def read_token_file(path: Path) -> str:
    """The token in a file, without the end of its line; a warning where other users can read the file."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a named pipe must not block
    with os.fdopen(handle, "rb") as opened:
        about = os.fstat(opened.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise ValueError(f"--token-file {path} is not a regular file; write the token into one")
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"--token-file {path} has more than {MOST_BYTES} bytes; it must contain only the token")
    if os.name == "posix" and about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        warnings.warn(f"other users can read {path}: chmod 600 {path}", stacklevel=2)
    return content.decode("utf-8", "replace").strip()


def _check(token: str, source: str) -> str:
    if not ALLOWED.fullmatch(token):
        raise ValueError(
            f"{source}: the token must have 8 to 200 letters, digits or signs, without spaces; make one with  "
            "openssl rand -hex 16"
        )
    return token


def same_token(given: bytes, token: str) -> bool:
    """Whether they are equal; how long that takes does not depend on where they differ."""
    return hmac.compare_digest(given, token.encode())


def token_of(header: bytes) -> bytes:
    """The token of an Authorization header: Bearer, or the password of Basic, for which browsers ask."""
    kind, _, rest = header.partition(b" ")
    if kind.lower() == b"bearer":
        return rest.strip()
    if kind.lower() == b"basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def make_link(address: str, token: str) -> str:
    """The address of the page with the token, to open in a browser."""
    return f"{address}/?token={quote(token, safe='')}"


def split_query(query: bytes) -> tuple[str | None, str]:
    """The token in a query string, None where there is none, and the query string without it."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    tokens = [value for name, value in pairs if name == "token"]
    return (tokens[0] if tokens else None), urlencode([pair for pair in pairs if pair[0] != "token"])


def cookie_name(headers: Mapping[bytes, bytes]) -> str:
    """A browser sends a cookie to every port of a host, so that its name has the port."""
    port = headers.get(b"host", b"").rpartition(b":")[2]
    return f"lmlab-{port.decode() if port.isdigit() else '80'}"


def cookie_value(token: str) -> str:
    """What the cookie holds: it proves that its owner knew the token, and does not contain it."""
    return hmac.digest(token.encode(), b"lmlab cookie", "sha256").hex()


def make_cookie(headers: Mapping[bytes, bytes], token: str) -> str:
    """The Set-Cookie header of a browser that has sent the token.

    Lax, not Strict: a browser does not send a Strict cookie with a link from another site, which must open the page.
    Whatever else another site requests, the guard refuses by Origin and Sec-Fetch-Site.
    """
    return f"{cookie_name(headers)}={cookie_value(token)}; Path=/; HttpOnly; SameSite=Lax"


def has_cookie(headers: Mapping[bytes, bytes], token: str) -> bool:
    """Whether a request has the cookie of this token."""
    wanted, value = cookie_name(headers).encode(), cookie_value(token)
    pairs = (part.strip().partition(b"=") for part in headers.get(b"cookie", b"").split(b";"))
    return any(name == wanted and same_token(given, value) for name, _, given in pairs)
