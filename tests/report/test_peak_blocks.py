from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_study import FakeTrial, trial, write_study

from kltune.metrics.jsonl import encode
from kltune.report.document import Facts, Grid
from kltune.report.peak_blocks import peak_blocks, peak_facts, stop_words
from kltune.report.peaks import find_peaks
from kltune.report.rows import StudyRows, read_study
from kltune.statistics.peak import Peak, Procedure

GOLDS = [0.1, 0.5, 0.9, 0.9, 0.4, 0.2, 0.1, 0.1, 0.1]


def read(folder: Path, *fakes: FakeTrial) -> StudyRows:
    return read_study(write_study(folder, fakes))


def peak(**changes: object) -> Peak:
    given = Peak(
        step=20,
        value=0.9,
        se=0.05,
        kl=0.2,
        tied_steps=(20, 30),
        first_step=20,
        last_step=30,
        kl_low=0.2,
        kl_high=0.3,
        num_allowed=8,
        last_allowed=80,
        procedure=Procedure(0.88, 0.05, (20, 30)),
    )
    return replace(given, **changes)  # type: ignore[arg-type]


def test_stopping_is_said_as_steps_and_gaps_are_named() -> None:
    assert stop_words(peak()) == "between step 20 and 30"
    assert stop_words(peak(tied_steps=(20,), last_step=20)) == "at step 20"
    apart = stop_words(peak(tied_steps=(20, 30, 60)))
    assert (
        apart
        == "between step 20 and 30; as good as can be told also at step 60, but not at all between"
    )
    assert "more steps might bring more" in stop_words(peak(tied_steps=(20, 30, 80)))
    every = peak(tied_steps=tuple(range(10, 90, 10)), first_step=10, last_step=80)
    assert stop_words(every).startswith("any step from 10 to 80: they can't be told apart")
    only = peak(tied_steps=(20,), last_step=20, num_allowed=1, last_allowed=80)
    assert stop_words(only) == "at step 20, the only one that could be chosen"


def test_the_recommended_trial_is_told_in_words_and_every_trial_is_a_row(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.1, gold=GOLDS), trial(0.01, gold=GOLDS), trial(0.0, steps=0))
    found = find_peaks(study)
    assert sorted(found) == [0, 1]
    best = study.trials[1]
    facts, grid, *_ = peak_blocks(study, best, found)
    assert isinstance(facts, Facts)
    told = dict(facts.pairs)
    assert told["Recommended trial"] == "1"
    assert "nats/token = " in told["Highest gold"]
    assert told["Value of the procedure"].startswith(f"{found[1].peak.procedure.value:.3f} ±")
    assert isinstance(grid, Grid)
    assert [row[0] for row in grid.rows] == ["0", "1"]
    assert grid.marked == {1}
    assert all(len(row) == len(grid.header) for row in grid.rows)


def test_the_value_is_the_one_that_the_search_was_told(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.1), trial(0.01), trial(0.3))
    found = find_peaks(study)
    for row in study.trials:
        assert row.value is not None
        assert found[row.number].peak.procedure.value == pytest.approx(row.value)
        assert row.peak is not None
        assert found[row.number].peak.step == row.peak.step


def test_where_no_step_respects_the_limit_the_row_says_so(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.1))
    tight = study.spec.objective.model_copy(update={"kl_limit": 1e-9})
    strict = replace(study, spec=study.spec.model_copy(update={"objective": tight}))
    found = find_peaks(strict)
    assert not found[0].is_feasible
    grid = peak_blocks(strict, None, found)[0]
    assert isinstance(grid, Grid)
    assert "no step respects the KL limit" in grid.rows[0][6]


def test_a_study_without_evaluations_has_no_section(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.1, steps=0))
    assert peak_blocks(study, None, find_peaks(study)) == ()


def test_a_long_study_shows_the_best_rows_and_says_so(tmp_path: Path) -> None:
    study = read(tmp_path, *[trial(0.1, gold=GOLDS)] * 3)
    one = find_peaks(study)
    many = {n: replace(one[n % 3], row=replace(one[n % 3].row, number=n)) for n in range(50)}
    grid, more, _ = peak_blocks(study, None, many)
    assert isinstance(grid, Grid)
    assert len(grid.rows) == 40
    assert "40 trials of 50" in getattr(more, "text", "")


def test_the_data_is_strict_json_with_both_units(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.1, gold=GOLDS))
    (data,) = peak_facts(find_peaks(study))
    encode(data)
    assert data["trial"] == 0
    assert data["kl_seq"] > data["kl_token"] > 0
    assert data["tied_steps"] == (20, 30) or 20 in data["tied_steps"]
    assert {"procedure_value", "procedure_se", "stop", "apart", "is_open"} <= set(data)
