from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kltune.cli import app
from kltune.launch import replay
from kltune.launch.replay import ReplayRequest


def requests(monkeypatch: pytest.MonkeyPatch) -> list[ReplayRequest]:
    seen: list[ReplayRequest] = []
    monkeypatch.setattr(replay, "run_replay", lambda request: seen.append(request) or 0)
    return seen


def test_every_flag_reaches_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = requests(monkeypatch)
    flags = "--trial 7 --steps 120 --trace-step 3 --out there --json"
    done = CliRunner().invoke(app, ["replay", str(tmp_path), *flags.split()])
    assert (done.exit_code, done.output) == (0, "")
    assert seen == [ReplayRequest(tmp_path, 7, steps=120, trace=3, out=Path("there"), as_json=True)]


def test_a_trace_is_of_the_first_step_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = requests(monkeypatch)
    for flags in ([], ["--trace"], ["--trace", "--trace-step", "4"]):
        CliRunner().invoke(app, ["replay", str(tmp_path), "--trial", "0", *flags])
    assert [request.trace for request in seen] == [None, 1, 4]


@pytest.mark.parametrize(
    "args", ["", "--trial -1", "--trial 1 --steps 0", "--trial 1 --trace-step 0"]
)
def test_a_bad_flag_is_exit_2(tmp_path: Path, args: str) -> None:
    assert CliRunner().invoke(app, ["replay", str(tmp_path), *args.split()]).exit_code == 2


def test_help_fits_a_screen_and_shows_an_example() -> None:
    shown = CliRunner().invoke(app, ["replay", "--help"], env={"COLUMNS": "80"}).output
    assert "kltune replay studies/kitchen-grpo --trial 7" in shown
    assert len(shown.splitlines()) <= 45
