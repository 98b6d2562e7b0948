from __future__ import annotations

import math

import numpy as np
import pytest

from kltune.grade import Grade
from kltune.spec.trial import KLUnit
from kltune.validate.distance import largest_jump, outlier_line, smooth_line

STEPS = range(1, 61)


def course(seed: int, noise: float = 0.12) -> np.ndarray:
    """KL that rises and settles, each step with noise of a few percent."""
    rng = np.random.default_rng(seed)
    return 0.3 * (1 - np.exp(-np.arange(1, 61) / 12)) * np.exp(rng.normal(0, noise, 60))


def test_noise_alone_hardly_ever_warns() -> None:
    warned = sum(
        smooth_line(STEPS, course(seed).tolist(), KLUnit.TOKEN).grade is not Grade.PASS
        for seed in range(200)
    )
    assert warned <= 10, f"{warned} of 200 smooth courses were warned of; at most 5 %"


@pytest.mark.parametrize(("factor", "grade"), [(2.0, Grade.WARN), (5.0, Grade.FAIL)])
def test_a_jump_is_found_where_it_is(factor: float, grade: Grade) -> None:
    for spread in (1, 20):  # one spike, or a new level
        kl = course(3, noise=0.03)
        kl[39 : 39 + spread] *= factor
        line = smooth_line(STEPS, kl.tolist(), KLUnit.TOKEN)
        assert line.grade is grade
        assert "step 40" in line.shown
        assert line.action


def test_the_first_steps_from_zero_are_no_jump() -> None:
    kl = [0.0, 0.001, 0.004, 0.02, *course(1, 0.02)[4:]]
    assert smooth_line(STEPS, kl, KLUnit.TOKEN).grade is Grade.PASS


def test_a_fall_is_no_jump() -> None:
    kl = course(2, 0.03)
    kl[40:] /= 10
    assert smooth_line(STEPS, kl.tolist(), KLUnit.TOKEN).grade is Grade.PASS


@pytest.mark.parametrize("kl", [[], [0.1] * 5, [math.nan] * 60, [0.0] * 60])
def test_too_little_to_tell_is_a_warning(kl: list[float]) -> None:
    assert largest_jump(range(len(kl)), kl) is None
    line = smooth_line(range(len(kl)), kl, KLUnit.SEQUENCE)
    assert (line.grade, line.number) == (Grade.WARN, None)


def test_without_any_scatter_a_jump_is_a_jump() -> None:
    kl = [0.1] * 30 + [0.5] + [0.1] * 29
    assert smooth_line(STEPS, kl, KLUnit.TOKEN).grade is Grade.FAIL


@pytest.mark.parametrize(
    ("largest", "grade"), [(4.0, Grade.PASS), (12.0, Grade.WARN), (25.0, Grade.FAIL)]
)
def test_the_largest_token_is_judged_where_it_was_recorded(largest: float, grade: Grade) -> None:
    rows = [{"step": s, "kl/exact_max_token": 1.0} for s in range(1, 9)]
    rows[5]["kl/exact_max_token"] = largest
    line = outlier_line(rows, [])
    assert (line.grade, line.number) == (grade, largest)
    assert "step 6" in line.shown


def kept(kls: list[float]) -> list[dict[str, float]]:
    return [
        {"step": 10 + 10 * (i // 8), "kl_seq": kl, "num_tokens": 12} for i, kl in enumerate(kls)
    ]


def test_completions_stand_in_where_tokens_were_not_recorded() -> None:
    even = outlier_line([{"step": 1}], kept([2.0] * 24))
    assert even.grade is Grade.PASS
    assert "did not record single tokens" in even.meaning
    one = outlier_line([], kept([2.0] * 23 + [60.0]))
    assert one.grade is Grade.WARN
    assert one.number == pytest.approx(60 / 106)
    assert outlier_line([], kept([2.0] * 5)).number is None
