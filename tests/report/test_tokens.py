from __future__ import annotations

import math
from pathlib import Path

import pytest
from fake_study import trial, write_study
from tokens_case import with_tokens

from kltune.metrics.jsonl import append_rows
from kltune.metrics.record import TokenProfile
from kltune.report.rows import read_study
from kltune.report.tokens import (
    MOST_OUTLIERS,
    WINDOW,
    densest,
    half_of_kl,
    places,
    pooled,
    read_tokens,
)

PEAKED = (0.2, 0.4, 0.9, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)


def test_start_peak_and_end_are_the_steps_around_them(tmp_path: Path) -> None:
    (row,) = with_tokens(tmp_path, [trial(0.3, gold=PEAKED)])
    moments = read_tokens(row).moments()
    assert [moment.words for moment in moments] == [
        "start (step 1)",
        "peak of gold (steps 18 to 22)",
        "end (steps 76 to 80)",
    ]
    assert moments[1].profile.kl == pytest.approx((0.2, 0.6, 0.2))
    assert moments[1].profile.tokens == (64 * WINDOW, 32 * WINDOW, 3 * WINDOW)


def test_a_peak_at_the_end_is_one_moment(tmp_path: Path) -> None:
    (row,) = with_tokens(tmp_path, [trial(0.3, gold=[n / 10 for n in range(9)])])
    assert [moment.name for moment in read_tokens(row).moments()] == ["start", "end"]


def test_one_step_is_one_moment(tmp_path: Path) -> None:
    (row,) = with_tokens(tmp_path, [trial(0.3, steps=1)])
    assert [m.words for m in read_tokens(row).moments()] == ["end (step 1)"]


def test_a_study_without_profiles_is_empty_and_keeps_what_it_has(tmp_path: Path) -> None:
    (row,) = read_study(write_study(tmp_path, [trial(0.3)])).trials
    evidence = read_tokens(row)
    assert evidence.is_empty
    assert evidence.moments() == ()
    assert evidence.outliers() == ()
    assert len(evidence.quantiles["mean"]) == 80


def test_steps_of_an_overtaken_attempt_do_not_count(tmp_path: Path) -> None:
    (row,) = with_tokens(tmp_path, [trial(0.3)])
    stale = {"trial": 0, "attempt": 0, "step": 80, "edges": [0, 1, 2, 4]}
    rest = {"kl_by_position": [9.0, 9.0, 9.0], "tokens_by_position": [64, 64, 64]}
    append_rows(row.folder / "tokens.jsonl", [{**stale, **rest}])
    assert read_tokens(row).profiles[80].kl == pytest.approx((0.8, 2.4, 0.8))


def test_curves_are_the_records(tmp_path: Path) -> None:
    (row,) = with_tokens(tmp_path, [trial(0.3)])
    evidence = read_tokens(row)
    assert evidence.quantiles["p99"][9] == (10, pytest.approx(9.0))
    assert [step for step, _ in evidence.grad_share] == [1, 11, 21, 31, 41, 51, 61, 71]
    assert evidence.gold_correlation[-1] == (80, -0.3)
    assert evidence.step_correlation[0] == (1, 0.25)
    share = dict(evidence.loss_share)
    assert 0 < share[80] < 1


def test_the_share_in_the_loss_is_left_out_where_no_kl_stands_there(tmp_path: Path) -> None:
    (row,) = with_tokens(tmp_path, [trial(0.3)])
    path = row.folder / "metrics.jsonl"
    lines = path.read_text().splitlines()
    import json

    rows = [{**json.loads(line), "train/loss_kl": 0.0} for line in lines]
    path.write_text("".join(f"{json.dumps(r)}\n" for r in rows))
    assert read_tokens(row).loss_share == ()


def test_a_few_outliers_of_peak_and_end_are_shown(tmp_path: Path) -> None:
    (row,) = with_tokens(tmp_path, [trial(0.3, gold=PEAKED)])
    listed = read_tokens(row).outliers()
    assert [(name, step, len(rows)) for name, step, rows in listed] == [
        ("peak", 20, MOST_OUTLIERS),
        ("end", 80, MOST_OUTLIERS),
    ]


def test_profiles_are_pooled_token_by_token() -> None:
    edges = (0, 1, 2)
    one, two = TokenProfile(edges, (0.1, 0.0), (10, 0)), TokenProfile(edges, (0.4, 0.3), (30, 6))
    both = pooled([one, two])
    assert both.tokens == (40, 6)
    assert both.kl == pytest.approx((0.325, 0.3))


def test_half_of_the_kl_is_found_and_where_it_is_densest() -> None:
    profile = TokenProfile((0, 2, 4, 8), (0.1, 0.3, 5.0), (20, 20, 1))
    # sums 2, 6, 5 of 13: the second bucket passes 6.5
    assert half_of_kl(profile) == (4, pytest.approx(40 / 41))
    assert densest(profile, fewest=4) == 1
    assert densest(profile, fewest=1) == 2
    assert places(profile, 1) == "tokens 2 to 3"
    assert places(TokenProfile((0, 1), (1.0,), (1,)), 0) == "token 0"


def test_nothing_is_said_of_no_kl_or_of_a_broken_one() -> None:
    assert half_of_kl(TokenProfile((0, 1), (0.0,), (4,))) is None
    assert half_of_kl(TokenProfile((0, 1), (math.nan,), (4,))) is None
    assert densest(TokenProfile((0, 1, 2), (math.nan, 0.0), (4, 4)), 1) is None
