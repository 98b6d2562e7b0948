"""The section on cost says what it knows, and of the rest that it is not known."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from chart_case import accepted
from fake_costs import add_costs, add_timing, extend, placed
from fake_study import FakeTrial, trial, typical_trials, write_study

from kltune.report.accounting import Shared
from kltune.report.accounting_blocks import accounting_blocks, shared_words
from kltune.report.document import Block, Facts, Figures
from kltune.report.rows import StudyRows, read_study
from kltune.trial.outcome import StopReason

SHARED = Shared(2, 2, 1, alone_step_s=0.2, placed_step_s=0.11, realised_step_s=0.125)


def facts_of(study: StudyRows) -> dict[str, str]:
    (facts,) = [block for block in accounting_blocks(study) if isinstance(block, Facts)]
    return dict(facts.pairs)


def study_of(folder: Path, trials: list[FakeTrial], **timing: Any) -> StudyRows:
    path = write_study(folder, trials)
    add_costs(path)
    add_timing(path, **timing)
    return read_study(path)


def figures(blocks: tuple[Block, ...]) -> list[str]:
    return [f.caption for block in blocks if isinstance(block, Figures) for f in block.figures]


def test_a_study_without_trials_has_no_section(tmp_path: Path) -> None:
    assert accounting_blocks(read_study(write_study(tmp_path, []))) == ()


def test_a_typical_study_says_what_was_eliminated_shared_and_reached(tmp_path: Path) -> None:
    study = study_of(
        tmp_path,
        typical_trials(),
        wall_s=300.0,
        trainer_s=290.0,
        worker_s=600.0,
        placement=placed(2, 2),
        alone_step_s=0.25,
        placed_step_s=0.13,
        peak_gflops=197.3,
    )
    facts = facts_of(study)
    assert "trial-steps planned for 24 trials that ended" in facts["Eliminated"]
    assert "pruned by peers 80 (2 trials, 16 s)" in facts["Eliminated"]
    assert facts["Thrown away"].startswith("17 trial-steps, 3.4 s of one worker")
    assert "× the speed of one trial alone" in facts["Shared"]
    assert "2 workers of 1 thread: 2 × at most" in facts["Shared"]
    assert (
        "of the measured fp32 matmul peak of 197 GFLOP/s over the whole search"
        in (facts["Share of the limit"])
    )
    assert "100 of them, none stopped early" in facts["A trial of full length"]
    assert "Price" not in facts
    assert len(figures(accounting_blocks(study))) == 2


def test_an_old_study_says_not_known_and_never_a_number(tmp_path: Path) -> None:
    path = write_study(tmp_path, [trial(0.5)])
    facts = facts_of(read_study(path))
    assert facts["Wall time"].startswith("not on record")
    assert facts["Shared"] == "not measured: the record does not say how trials were placed"
    assert facts["Share of the limit"] == (
        "not known: 89 of 89 steps and evaluations were recorded without their operations"
    )
    assert "not known" in facts["A trial of full length"]
    assert facts["Eliminated"].startswith("nothing of 80 trial-steps planned for 1 trial")
    assert figures(accounting_blocks(read_study(path))) == []


def test_the_share_of_bookkeeping_is_there_once_it_was_measured(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, [trial(0.5)]))
    assert "Bookkeeping" not in facts_of(study)
    timed = dataclasses.replace(study, timing={"wall_s": 300.0, "bookkeeping_frac": 0.021})
    assert facts_of(timed)["Bookkeeping"].startswith("2.1 % of the wall time")
    assert facts_of(timed)["Wall time"] == "5 min 00 s"


def test_where_the_time_went_adds_up_to_all_of_it(tmp_path: Path) -> None:
    study = study_of(tmp_path, [trial(0.5)], wall_s=25.0, trainer_s=22.0)
    # 80 steps of .08, .02, .02, .04 and .03 s, 9 evaluations of .5 s
    assert facts_of(study)["Where the time went"] == (
        "sampling 26 %; scoring 6.4 %; reference 6.4 %; log-probs 13 %; updates 9.6 %; evaluations 18 %; "
        "saving, starting, waiting 9.2 %; outside the trainer 12 %"
    )


def test_an_old_record_does_not_part_the_reference_from_the_updates(tmp_path: Path) -> None:
    study = study_of(tmp_path, [trial(0.5)], wall_s=25.0, trainer_s=22.0)
    extend(study.path / "trials/00000/metrics.jsonl", {"time/reference_s": None})
    found = facts_of(read_study(study.path))["Where the time went"]
    assert "log-probs and updates 22 %" in found
    assert "reference" not in found


def test_a_crashed_sessions_missing_wall_time_is_said(tmp_path: Path) -> None:
    facts = facts_of(study_of(tmp_path, [trial(0.5)], wall_s=10.0, trainer_s=9.0))
    assert "a session that crashed" in facts["Wall time"]
    assert "100 of them" not in facts["A trial of full length"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "1.6 × the speed of one trial alone. A trial-step took 0.125 s of wall time"),
        ({"slots": 8}, "2 workers of 1 thread, 8 trials at once. That"),
        ({"alone_step_s": 0.1}, "nothing: 0.8 × the speed of one trial alone"),
        ({"alone_step_s": None}, "no calibration was run (2 workers of 1 thread)"),
        ({"realised_step_s": None}, "not known: the time of training is not on record"),
        ({"workers": 1, "slots": 1, "threads": 2}, "nothing: one trial ran at a time"),
    ],
)
def test_sharing_in_words(changes: dict[str, Any], words: str) -> None:
    assert words in shared_words(dataclasses.replace(SHARED, **changes), sessions=1)


def test_a_placement_of_several_sessions_is_called_the_latest() -> None:
    assert "in the latest of 3 sessions" in shared_words(SHARED, sessions=3)


@pytest.mark.parametrize(
    ("price", "words"),
    [
        (
            {"per_hour": 2.5, "currency": "EUR", "watts": 300, "per_kwh": 0.3},
            "5.18 EUR (2 h × 2.5 EUR + 0.6 kWh × 0.3 EUR); energy 0.6 kWh (2 h × 300 W)",
        ),
        ({"per_hour": 2.5, "currency": "EUR"}, "5 EUR (2 h × 2.5 EUR)"),
        ({"watts": 300}, "0.6 kWh (2 h × 300 W); no price of money was given"),
    ],
)
def test_a_price_shows_how_it_was_reckoned(
    tmp_path: Path, price: dict[str, Any], words: str
) -> None:
    path = write_study(tmp_path, [trial(0.5)], budget={"trials": 4, "price": price})
    add_costs(path)
    add_timing(path, wall_s=7200.0, trainer_s=7100.0)
    assert facts_of(read_study(path))["Price"] == words


def test_a_trial_that_was_cut_shows_in_the_bar(tmp_path: Path) -> None:
    cut = trial(0.5, steps=40, reason=StopReason.PRUNED, detail="beaten")
    with_one = figures(accounting_blocks(study_of(tmp_path / "a", [trial(0.5), cut])))
    without = figures(accounting_blocks(study_of(tmp_path / "b", [trial(0.5)])))
    assert len(with_one) == len(without) + 1


def test_both_bars_are_charts_as_well(tmp_path: Path) -> None:
    timing = {"wall_s": 300.0, "trainer_s": 290.0, "worker_s": 300.0}
    blocks = accounting_blocks(study_of(tmp_path, typical_trials(), **timing))
    (drawn,) = [block for block in blocks if isinstance(block, Figures)]
    assert len(drawn.figures) == 2
    for figure in drawn.figures:
        assert accepted(figure.chart).layout["title"]["text"] in figure.svg
