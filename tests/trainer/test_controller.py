"""The proportional rule against the published vectors."""

from __future__ import annotations

import pytest
import tiny

from kltune.spec.trial import TrialSpec
from kltune.trainer.controller import next_beta


def proportional(**fields: object) -> TrialSpec:
    return tiny.trial(
        **{"beta": 0.2, "controller": "proportional", "target_kl": 6, "horizon": 10000, **fields}
    )


@pytest.mark.parametrize(("kl", "beta"), [(9, 0.202048), (6.6, 0.201024), (6, 0.2), (0, 0.197952)])
def test_published_vectors(kl: float, beta: float) -> None:
    assert next_beta(proportional(), 0.2, kl, 512) == pytest.approx(beta, abs=5e-7)


def test_an_error_inside_the_clip_moves_beta_in_proportion() -> None:
    assert next_beta(proportional(), 0.2, 6.3, 512) == pytest.approx(
        0.2 * (1 + 0.05 * 0.0512), rel=1e-12
    )
    assert next_beta(proportional(), 0.2, 5.7, 512) == pytest.approx(
        0.2 * (1 - 0.05 * 0.0512), rel=1e-12
    )


def test_an_error_beyond_20_percent_moves_beta_no_further() -> None:
    spec = proportional(horizon=100)
    assert next_beta(spec, 1.0, 1e9, 10) == pytest.approx(1.02, rel=1e-12)
    assert next_beta(spec, 1.0, 7.2, 10) == pytest.approx(1.02, rel=1e-12)
    assert next_beta(spec, 1.0, -5.0, 10) == pytest.approx(0.98, rel=1e-12)


def test_the_step_starts_from_the_present_beta_and_not_from_the_first() -> None:
    assert next_beta(proportional(), 0.05, 9, 512) == pytest.approx(0.05 * 1.01024, rel=1e-12)


def test_fixed_is_constant_whatever_the_kl() -> None:
    spec = tiny.trial(beta=0.1, target_kl=6, horizon=100)
    series, beta = [], 0.1
    for kl in (0, 1, 2, 5, 10, 20, 30, 40, 45, 50):
        series.append(beta)
        beta = next_beta(spec, beta, kl, 512)
    assert series == [0.1] * 10
