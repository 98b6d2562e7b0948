from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from process_groups import eventually

from kltune.launch import ui_live
from kltune.launch.ui_live import LiveReport, Render, fingerprint
from kltune.report.build import LivePage


class Drawing:
    """Draws the text of a file; counts, and fails or waits when told to."""

    def __init__(self) -> None:
        self.count = 0
        self.fault: Exception | None = None
        self.is_over = False
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, study_path: Path) -> LivePage:
        self.gate.wait(60)
        self.count += 1
        if self.fault is not None:
            raise self.fault
        return LivePage(f"<head>{(study_path / 'record').read_text()}", self.is_over)


@pytest.fixture
def drawing() -> Drawing:
    return Drawing()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui_live, "LOOK_S", 0.02)
    monkeypatch.setattr(ui_live, "REST_S", 0.05)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "record").write_text("one")
    return tmp_path


@pytest.fixture
def live(study: Path, drawing: Drawing) -> Iterator[LiveReport]:
    yield from opened(study, drawing)


def opened(study: Path, render: Render) -> Iterator[LiveReport]:
    report = LiveReport(study, render)
    yield report
    report.close()


def text(report: LiveReport) -> str:
    latest = report.page()
    assert latest is not None
    return latest.html.decode()


def test_a_changed_record_is_drawn_anew_and_has_another_version(
    live: LiveReport, study: Path
) -> None:
    assert text(live).endswith("one")
    before = live.version()
    (study / "record").write_text("two!")
    assert eventually(lambda: text(live).endswith("two!"))
    assert live.version() != before


def test_the_page_knows_which_version_it_is(live: LiveReport) -> None:
    page = text(live)
    version, _ = live.version()
    assert f'<head><meta name="kltune-version" content="{version}">' in page


def test_an_unchanged_record_is_drawn_once(live: LiveReport, drawing: Drawing) -> None:
    for _ in range(10):
        text(live)
        time.sleep(0.02)
    assert drawing.count == 1


def test_nothing_is_drawn_while_nobody_looks(
    study: Path, drawing: Drawing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ui_live, "WATCHED_S", 0.1)
    for live in opened(study, drawing):
        text(live)
        time.sleep(0.3)
        (study / "record").write_text("two!")
        time.sleep(0.3)
        assert drawing.count == 1
        assert eventually(lambda: text(live).endswith("two!"))  # noqa: B023


def test_drawing_takes_a_fifth_of_a_core_at_most(study: Path) -> None:
    times: list[float] = []

    def slow(path: Path) -> LivePage:
        times.append(time.monotonic())
        until = time.thread_time() + 0.2
        while time.thread_time() < until:
            pass
        return LivePage((path / "record").read_text(), is_over=False)

    for live in opened(study, slow):

        def changes() -> bool:
            (study / "record").write_text(str(time.monotonic()))
            live.version()  # noqa: B023
            return len(times) >= 3

        assert eventually(changes, 60)
    assert min(b - a for a, b in itertools.pairwise(times)) >= 0.95


def test_a_record_that_cannot_be_drawn_leaves_the_last_page_and_is_tried_again(
    study: Path, drawing: Drawing
) -> None:
    heard: list[str] = []
    live = LiveReport(study, drawing, heard.append)
    assert text(live).endswith("one")
    drawing.fault = KeyError("step")
    (study / "record").write_text("two!")
    assert eventually(lambda: text(live).endswith("one") and drawing.count > 2)
    assert (heard, live.error()) == (["KeyError: 'step'"], "KeyError: 'step'")
    drawing.fault = None
    assert eventually(lambda: text(live).endswith("two!"))
    assert live.error() is None
    live.close()


def test_before_the_first_drawing_there_is_no_version(study: Path, drawing: Drawing) -> None:
    drawing.gate.clear()
    live = LiveReport(study, drawing)
    assert live.version() == ("", False)
    drawing.gate.set()
    assert live.page() is not None
    assert live.version()[0]
    live.close()


def test_a_request_does_not_wait_for_a_long_drawing(
    live: LiveReport, study: Path, drawing: Drawing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ui_live, "_PATIENCE_S", 0.2)
    text(live)
    drawing.gate.clear()
    (study / "record").write_text("two!")
    begin = time.monotonic()
    assert text(live).endswith("one")
    assert live.version()[0]
    assert time.monotonic() - begin < 2
    drawing.gate.set()


def test_closing_does_not_wait_for_a_long_drawing(study: Path, drawing: Drawing) -> None:
    drawing.gate.clear()
    live = LiveReport(study, drawing)
    begin = time.monotonic()
    live.close()
    assert time.monotonic() - begin < 5
    drawing.gate.set()


def test_it_is_final_when_the_study_is_over_and_the_record_is_quiet(
    study: Path, drawing: Drawing
) -> None:
    drawing.is_over = True
    for live in opened(study, drawing):
        text(live)
        assert not live.version()[1]  # changed a moment ago
        long_ago = time.time() - 60
        os.utime(study / "record", (long_ago, long_ago))
        assert eventually(lambda: live.version()[1])  # noqa: B023


def test_it_is_not_final_while_a_change_is_yet_to_be_drawn(study: Path, drawing: Drawing) -> None:
    drawing.is_over = True
    for live in opened(study, drawing):
        text(live)
        drawing.gate.clear()
        (study / "record").write_text("the last change")
        os.utime(study / "record", (1, 1))
        assert not live.version()[1]
        drawing.gate.set()
        assert eventually(lambda: live.version()[1])  # noqa: B023
        assert text(live).endswith("the last change")


def test_a_study_that_is_not_over_is_never_final(live: LiveReport, study: Path) -> None:
    text(live)
    os.utime(study / "record", (1, 1))
    assert not live.version()[1]


@pytest.mark.parametrize(
    "name",
    [
        "report.html",
        ".report.html.7.tmp",
        "mlflow.db",
        "mlflow.db-wal",
        "study.db-shm",
        ".lock",
        "artifacts/a.png",
        "replays/7/metrics.jsonl",
        "trials/00000/checkpoints/last/weights",
        "trials/00000/mlflow.json",
    ],
)
def test_what_the_report_does_not_read_is_no_change(name: str, study: Path) -> None:
    before = fingerprint(study)
    (study / name).parent.mkdir(parents=True, exist_ok=True)
    (study / name).write_text("x")
    assert fingerprint(study) == before


@pytest.mark.parametrize(
    "name",
    [
        "trials/00000/metrics.jsonl",
        "study.db",
        "study.db-wal",
        "preview.json",
        "timing.json",
        "confirm/runs/a/evals.jsonl",
    ],
)
def test_what_the_report_reads_is_a_change(name: str, study: Path) -> None:
    before = fingerprint(study)
    (study / name).parent.mkdir(parents=True, exist_ok=True)
    (study / name).write_text("x")
    assert fingerprint(study) != before


def test_a_broken_link_and_a_folder_that_is_gone_are_no_error(study: Path) -> None:
    (study / "link").symlink_to(study / "nowhere")
    assert fingerprint(study)
    assert fingerprint(study / "gone") == frozenset()
