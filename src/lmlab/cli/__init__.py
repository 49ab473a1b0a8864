"""The command line: one file per verb; nothing heavy is imported before a verb needs it.

Not even typer is imported here, so that Ctrl-C ends quietly from the first moment on.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lmlab.cli.application import app as app


def main() -> None:
    """Run the command line; an error is one clear message, with exit status 2 if the user can fix it, 1 if not."""
    try:
        import warnings

        from lmlab.cli import errors

        warnings.showwarning = _show_warning
        if errors.is_follower():
            errors.be_silent()
        errors.debugging.set("--debug" in sys.argv[2:])  # people append it to the command that failed
        sys.argv[2:] = [word for word in sys.argv[2:] if word != "--debug"]
        try:
            from lmlab.cli.application import app

            app()
        except Exception as error:
            sys.exit(errors.report(error))
    except (KeyboardInterrupt, SystemExit) as end:
        status = 130 if isinstance(end, KeyboardInterrupt) else end.code
        if status == 130:
            _end_at_once()
        sys.exit(status)


def _end_at_once() -> None:
    """Let a further Ctrl-C end the process, which is ending; in Python it would print a traceback."""
    import signal
    import threading

    while threading.current_thread() is threading.main_thread():
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            return
        except KeyboardInterrupt:  # a Ctrl-C that came just now
            continue


def _show_warning(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
    from lmlab.messages import printable

    print(f"warning: {printable(str(message))}", file=sys.stderr)


def __getattr__(name: str) -> Any:
    """The typer application, imported when it is reached for (PEP 562)."""
    if name == "app":
        from lmlab.cli.application import app

        return app
    raise AttributeError(f"module 'lmlab.cli' has no attribute {name!r}")
