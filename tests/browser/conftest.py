"""A real Chromium for the tests of this folder; none here: they are skipped, and say why."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kltune.report.document import Document
from kltune.report.page import render_page

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",  # which root has not
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> str:
    """Path of a Chromium; skips the test where there is none."""
    named = os.environ.get("KLTUNE_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser: install one of {', '.join(NAMES)}, or name it in KLTUNE_CHROMIUM")
    return found


@pytest.fixture(scope="module")
def browser() -> Generator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="no playwright: pip install playwright"
    )
    path = chromium()
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        yield running
        running.close()


class Seen:
    """A page that is open, and all that it said and asked for."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.said: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        page.on("dialog", self._dismiss)
        page.on("request", self._note)

    def _dismiss(self, dialog: Any) -> None:
        self.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _note(self, request: Any) -> None:
        if request.url.split("#")[0] != self.url and not request.url.startswith(("blob:", "data:")):
            self.asked.append(request.url)

    def draw_all(self) -> None:
        """Scroll to each chart and wait until it stands."""
        for figure in self.page.query_selector_all("figure.interactive"):
            figure.scroll_into_view_if_needed()
        self.page.wait_for_function(
            "() => [...document.querySelectorAll('figure.interactive')].every("
            "f => f.querySelector('.plot .main-svg'))"
        )


Show = Callable[..., AbstractContextManager[Seen]]


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Show:
    """Open a document as a file; at the end it must have said nothing and asked for nothing."""

    @contextmanager
    def opened(
        document: Document,
        *,
        anchor: str = "",
        width: int = 1280,
        height: int = 900,
        **context: Any,
    ) -> Generator[Seen]:
        path = tmp_path / "report.html"
        path.write_text(render_page(document), encoding="utf-8")
        url = path.as_uri()
        room = browser.new_context(viewport={"width": width, "height": height}, **context)
        try:
            room.set_default_timeout(8_000)
            seen = Seen(room.new_page(), url)
            seen.page.goto(url + anchor)
            yield seen
            assert (seen.said, seen.asked) == ([], [])
        finally:
            room.close()

    return opened
