from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_study import typical_trials, write_study

from kltune.report.build import build_report


@pytest.mark.slow
@pytest.mark.parametrize("width", [375, 1280])
def test_a_studys_own_report_draws_every_chart_and_opens_every_trial(
    browser: Any, tmp_path: Path, width: int
) -> None:
    path = build_report(write_study(tmp_path / "study", typical_trials())).html
    said: list[str] = []
    asked: list[str] = []
    room = browser.new_context(viewport={"width": width, "height": 800})
    try:
        page = room.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        figures = page.locator("figure.interactive")
        assert figures.count() > 5
        for place in range(figures.count()):
            figures.nth(place).scroll_into_view_if_needed()
            figures.nth(place).locator(".plot .main-svg").first.wait_for()
        assert page.locator("[data-failed]").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        rows = page.locator(".trials tbody tr")
        assert rows.count() == len(typical_trials())
        for number in range(rows.count()):
            page.evaluate(f"location.hash = '#trial-{number}'")
            page.wait_for_selector(f"dialog[open] h2:text-matches('Trial {number}\\\\b')")
        page.wait_for_selector("dialog .plot .main-svg")
        assert said == []
        assert [url for url in asked if not url.startswith(("file:", "blob:", "data:"))] == []
    finally:
        room.close()
