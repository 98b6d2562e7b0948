"""The start is compared by itself and changes nothing about the others."""

from __future__ import annotations

from confirm_case import NAMES, ROLES, gold_SKP, judged

from kltune.confirm.judge import judge


def test_the_start_stays_out_of_the_pooled_variance() -> None:
    values = gold_SKP([1.0, 0.9, 0.5, 0.0])
    quiet = values.copy()
    quiet[:, 3] = values[:, 3].mean()
    one, other = judge("g", NAMES, ROLES, values), judge("g", NAMES, ROLES, quiet)
    assert one.places[:3] == other.places[:3]
    assert one.against[:2] == other.against[:2]
    assert one.against[2] != other.against[2]
    assert one.places[3].shrunk is None


def test_the_best_baseline_is_the_one_with_the_highest_gold() -> None:
    best = judged([1.0, 0.9, 0.5]).best_baseline
    assert best is not None
    assert best.arm == 2
    assert judged([1.0, 0.9]).best_baseline is None
