from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import law_case
from fake_study import write_study
from law_case import LAW_BUDGET, SETTLED, fit

from kltune.metrics.jsonl import encode
from kltune.report.document import Facts, Figures, Grid, Paragraph
from kltune.report.law_blocks import law_blocks, law_facts
from kltune.report.law_findings import find_laws
from kltune.report.rows import read_study
from kltune.statistics.law import LawDoubt, LawVerdict
from kltune.statistics.law_errors import Estimate


def test_answers_come_first_then_the_figure_then_every_trial(tmp_path: Path) -> None:
    rows = law_case.study(tmp_path)
    found = law_case.findings(rows, best=2, budget=LAW_BUDGET)
    facts, figures, grid, note = law_blocks(rows, found)
    assert isinstance(facts, Facts)
    assert [name for name, _ in facts.pairs] == [
        "KL at which gold peaks",
        "One frontier for all betas?",
        "KL at the end of the trials",
        "Is beta told?",
        "What to carry over",
    ]
    assert isinstance(figures, Figures)
    assert isinstance(grid, Grid)
    assert [row[0] for row in grid.rows] == [str(n) for n in range(8)]
    assert grid.marked == {2}
    assert all(len(row) == len(grid.header) for row in grid.rows)
    assert isinstance(note, Paragraph)
    assert "Not covered" in note.text


def test_verdicts_and_peaks_of_trials_are_told_apart(tmp_path: Path) -> None:
    rows = law_case.study(tmp_path)
    found = law_case.findings(rows)
    infinite = float("inf")
    fits = [
        fit(),
        fit(verdict=LawVerdict.REJECTED, misfit_p=0.01),
        fit(
            verdict=LawVerdict.NOT_IDENTIFIABLE,
            doubt=LawDoubt.OUTSIDE,
            kl_peak=Estimate(5.0, 2.0, 20.0),
        ),
        fit(
            verdict=LawVerdict.NOT_IDENTIFIABLE,
            doubt=LawDoubt.NO_BEND,
            kl_peak=Estimate(99.0, 12.0, infinite),
        ),
    ]
    laws = tuple(
        replace(law, fit=one, settling=SETTLED)
        for law, one in zip(found.trials, [*fits, *fits], strict=True)
    )
    grid = law_blocks(rows, replace(found, trials=laws))[2]
    assert isinstance(grid, Grid)
    assert [row[2].partition(":")[0] for row in grid.rows[:4]] == [
        "identified",
        "law rejected",
        "not identifiable",
        "not identifiable",
    ]
    peaks = [row[5] for row in grid.rows[:4]]
    assert peaks == ["2.72 (2.1 to 3.9)", "–", "not below 2", "beyond 8, if any"]
    assert grid.rows[0][7] == "settled at 2.5"


def test_an_empty_study_has_no_section(tmp_path: Path) -> None:
    rows = read_study(write_study(tmp_path, []))
    assert law_blocks(rows, find_laws(rows, None)) == ()


def test_without_a_recommendation_beta_is_not_judged(tmp_path: Path) -> None:
    rows = law_case.study(tmp_path)
    facts = law_blocks(rows, law_case.findings(rows, best=None))[0]
    assert isinstance(facts, Facts)
    assert "Is beta told?" not in dict(facts.pairs)


def test_a_long_study_shows_the_best_rows_and_says_so(tmp_path: Path) -> None:
    rows = law_case.study(tmp_path)
    found = law_case.findings(rows)
    many = tuple(
        replace(law, row=replace(law.row, number=n))
        for n, law in enumerate(found.trials[n % 8] for n in range(60))
    )
    grid, more = law_blocks(rows, replace(found, trials=many))[2:4]
    assert isinstance(grid, Grid)
    assert len(grid.rows) == 40
    assert isinstance(more, Paragraph)
    assert "40 trials of 60" in more.text


def test_the_data_is_strict_json_and_says_the_same(tmp_path: Path) -> None:
    rows = law_case.study(tmp_path)
    data = law_facts(law_case.findings(rows, best=1))
    encode(data)
    assert {"pooled", "largest_gap", "frontier", "trials", "beta", "kl_budget", "words"} == set(
        data
    )
    assert len(data["trials"]) == 8
    assert data["beta"]["trial"] == 1
    assert data["trials"][0]["settling"]["trend"] in (
        "settled",
        "still rising",
        "still falling",
        "can't be told",
    )
    assert law_facts(law_case.findings(rows, best=None))["beta"] is None
