from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from kltune.launch.status_facts import read_standing
from kltune.launch.status_pace import Pace
from kltune.launch.status_table import ago, not_started_table, size_words, status_table
from kltune.metrics.jsonl import append_rows, write_json
from kltune.study.holder import Holder
from tests.standing_case import NOW, write_study, write_trial

HELD = Holder("held", 7, "kltune sweep", NOW - 100)


def shown(table: RenderableType, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(table)
    return out.getvalue()


def words(table: RenderableType) -> str:
    return " ".join(shown(table).split())


def warn(folder: Path, detail: str) -> None:
    event = {"event": "warning", "guard": "entropy_collapse", "detail": detail, "first_step": 2}
    row = {"trial": 0, "attempt": 1, "step": 5, "time": NOW - 50, **event}
    append_rows(folder / "events.jsonl", [row])


def test_a_running_study_reads_as_a_person_would_ask(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    write_trial(study, 0, ending={}, gold=0.7)
    warn(write_trial(study, 1, step=30, last=NOW - 3), "entropy fell to 0.1 nats/token")
    standing = replace(read_standing(study, lambda: NOW), holder=HELD)
    text = words(status_table(standing, Pace(1.5, 60.0, 30.0, 3.0, is_quiet=False)))
    for told in (
        "kitchen: running (kltune sweep, process 7)",
        "1 of 4 ended: 1 running, 1 complete",
        "trial 1: step 30 of 80, KL 0.2 nats/token = 2.4 nats/sequence",
        "1.5 trial-steps per second; about 1 min 00 s left, but budget.wall ends it in 30 s",
        "3.0 s ago",
        "trial 0, value 0.700 (gold_peak): gold 0.700 ± 0.070 at step 80",
        "trial 1, entropy_collapse: entropy fell to 0.1 nats/token",
    ):
        assert told in text
    assert "may hang" not in text


def test_a_hang_is_said(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    quiet = Pace(None, None, None, 700.0, is_quiet=True)
    standing = replace(read_standing(study, lambda: NOW), holder=HELD)
    assert "none for 11 min 40 s: it may hang" in words(status_table(standing, quiet))
    write_trial(study, 0)
    standing = replace(read_standing(study, lambda: NOW + 600), holder=HELD)
    assert "so it may hang" in words(status_table(standing, quiet))


def test_a_stopped_study_does_not_claim_to_run(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    write_trial(study, 0)
    text = words(status_table(read_standing(study, lambda: NOW + 3600), None))
    assert "kitchen: stopped" in text
    assert "1 without an end" in text
    assert "Best so far none yet" in text
    assert "Running" not in text


def test_many_warnings_do_not_fill_the_screen(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    for number in range(9):
        warn(write_trial(study, number, ending={}), "w")
    assert "and 4 before these" in words(status_table(read_standing(study), None))


def test_what_a_record_says_does_nothing_to_the_terminal(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    warn(write_trial(study, 0), "red \x1b[31m and \x07 [bold]markup[/bold]")
    text = shown(status_table(read_standing(study), None), 200)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]markup[/bold]" in text


def test_a_study_that_does_not_exist_comes_with_its_first_steps() -> None:
    text = words(not_started_table(Path("studies/x"), ("kltune check a", "kltune sweep a")))
    assert "there is no studies/x yet" in text
    assert "Next kltune check a" in text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2_345_678, "2.3 MB"), (250e6, "250 MB"),
     (3.2e15, "3200 TB")],
)  # fmt: skip
def test_sizes_are_in_decimal_units(count: float, text: str) -> None:
    assert size_words(int(count)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0.0 s"), (12, "12 s"), (3700, "1 h 01 min"), (9 * 86_400, "9 days")],
)
def test_ages_are_in_words(seconds: float, text: str) -> None:
    assert ago(seconds) == text


def test_a_finished_study_leads_with_what_its_report_recommends(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    for number, gold in enumerate((0.5, 0.9, 0.7, 0.2)):
        write_trial(study, number, ending={}, gold=gold)
    standing = read_standing(study, lambda: NOW)
    assert "Highest value trial 1, value 0.900" in words(status_table(standing, None))
    write_json(study / "report.json", {"best": {"number": 2}})
    os.utime(study / "report.json", (NOW, NOW))
    text = words(status_table(standing, None))
    assert "Recommended trial 2, value 0.700 (gold_peak): gold 0.700 ± 0.070" in text
    assert text.index("Recommended") < text.index("Highest value trial 1, value 0.900")
    assert "not recommended: see the report" in text
    os.utime(study / "report.json", (NOW - 1000, NOW - 1000))  # of an earlier, shorter search
    assert "Recommended" not in words(status_table(standing, None))


def test_one_trial_that_is_both_is_told_once(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    for number in range(4):
        write_trial(study, number, ending={}, gold=0.1 * number)
    write_json(study / "report.json", {"best": {"number": 3}})
    os.utime(study / "report.json", (NOW, NOW))
    text = words(status_table(read_standing(study, lambda: NOW), None))
    assert "Highest value trial 3 too" in text


def test_a_recommended_trial_that_is_not_above_the_untrained_model_is_said_to_be_so(
    tmp_path: Path,
) -> None:
    study = write_study(tmp_path)
    for number in range(4):
        write_trial(study, number, ending={}, gold=0.1)
    said = "No trial beats the untrained model: gold 0.5 before."
    write_json(study / "report.json", {"best": {"number": 1}, "start_words": said})
    os.utime(study / "report.json", (NOW, NOW))
    text = words(status_table(read_standing(study, lambda: NOW), None))
    assert f"Before training {said}" in text
