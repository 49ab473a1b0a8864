"""A page of the studio in a real Chromium, which remembers what must not happen."""

from __future__ import annotations

import shutil
from typing import Any
from urllib.parse import urlencode

from patience import PATIENCE
from studio_texts import TOKEN

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NO_CHROMIUM = "there is no Chromium here (make test-browser installs it)"
SHOWN = """number => document.getElementById("lecture").innerText.includes(`${number} / `)
  && document.querySelector("article:not(.busy)")?.dataset.drawn === location.hash"""
"""Whether the foot names this slide of a lecture, and its view is drawn."""


class Studio:
    """A page of the browser that remembers what must not happen."""

    def __init__(self, browser: Any, address: str, **settings: Any) -> None:
        self.page = browser.new_page(viewport={"width": 1200, "height": 900}, **settings)
        self.address, self.wrong = address, list[str]()
        self.page.set_default_timeout(1000 * PATIENCE)
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", self._request)
        self.page.goto(f"{address}?token={TOKEN}")  # as the printed link does

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"{message.type}: {message.text}")

    def _dismiss(self, dialog: Any) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.address, "blob:", "data:image/png")):
            self.wrong.append(f"outside: {request.url}")

    def open(self, view: str, **state: Any) -> Any:
        """Open a view in a state, and wait until it is drawn."""
        query = urlencode(state, doseq=True)
        self.page.goto(f"{self.address}#/{view}{'?' + query if query else ''}")
        self.settle(view)
        return self.page

    def settle(self, view: str) -> None:
        """Wait until what the address says is drawn."""
        self.page.wait_for_function(
            "view => { const page = document.querySelector(`article[data-view=${view}]:not(.busy)`);"
            " return page && page.dataset.drawn === location.hash }",
            arg=view,
        )

    def check(self) -> None:
        said = self.page.locator(".wrong:visible").all_inner_texts()
        assert not self.wrong + said, (self.wrong, said)


def state_of(page: Any) -> str:
    """The state of a view, as its address has it."""
    return str(page.evaluate("decodeURIComponent(location.hash.replaceAll('+', ' '))"))
