from __future__ import annotations

import math

import numpy as np
import pytest

from kltune.audit.estimators import NAMES, EstimatorRow, mean_per_token, measure
from kltune.frameworks.samples import Samples

POLICY = np.array([0.4, 0.3, 0.2, 0.1])
REFERENCE = np.array([0.1, 0.2, 0.3, 0.4])
KL = float(POLICY @ np.log(POLICY / REFERENCE))


def enumerated() -> dict[str, EstimatorRow]:
    """The four answers of kl-reference.md's toy, weighted by their probability."""
    samples = Samples(
        np.log(POLICY)[:, None], np.log(REFERENCE)[:, None], np.ones((4, 1), dtype=bool), POLICY
    )
    rows = measure(samples, np.full((4, 1), KL), np.arange(4))
    return {row.name: row for row in rows}


def drawn(
    count: int, seed: int = 0, lengths: tuple[int, ...] = (1, 2, 5)
) -> tuple[Samples, np.ndarray, np.ndarray]:
    """Completions of several lengths, tokens drawn from the toy; two completions per cluster."""
    draw = np.random.default_rng(seed)
    width = max(lengths)
    tokens = draw.choice(4, size=(count, width), p=POLICY)
    mask = np.arange(width) < draw.choice(lengths, size=count)[:, None]
    samples = Samples(np.log(POLICY)[tokens], np.log(REFERENCE)[tokens], mask)
    return samples, np.full((count, width), KL), np.arange(count) // 2


def test_the_toy_table() -> None:
    rows = enumerated()
    assert rows["exact"].mean_token == pytest.approx(0.456435, abs=1e-6)
    assert rows["k2"].mean_token == pytest.approx(0.521554, abs=1e-6)
    assert rows["abs"].mean_token == pytest.approx(0.895880, abs=1e-6)
    for name, sd in (("k1", 0.9137), ("k2", 0.4394), ("k3", 0.4662), ("exact", 0.0)):
        assert rows[name].sd_token == pytest.approx(sd, abs=1e-4), name
    for name in ("k1", "k3", "exact"):
        assert rows[name].bias_token.value == pytest.approx(0.0, abs=1e-12), name
    assert rows["k2"].bias_token.value == pytest.approx(0.521554 - 0.456435, abs=1e-6)
    assert all(row.bias_seq.se == 0 for row in rows.values())


def test_completions_needed_is_for_ten_percent_of_the_exact_kl() -> None:
    row = enumerated()["k1"]
    assert row.sd_seq / math.sqrt(row.completions_needed) == pytest.approx(0.1 * KL)


def test_bias_is_found_within_its_error_and_none_is_seen_where_there_is_none() -> None:
    rows = {row.name: row for row in measure(*drawn(20_000))}
    for name, bias in (("k1", 0.0), ("k3", 0.0), ("k2", 0.065119), ("abs", 0.439445)):
        found = rows[name].bias_token
        assert abs(found.value - bias) < 3 * found.se, name
        found = rows[name].bias_seq
        assert abs(found.value - bias * 8 / 3) < 3.5 * found.se, name
    assert abs(rows["k2"].bias_token.value) > 10 * rows["k2"].bias_token.se


def test_errors_are_calibrated() -> None:
    rows = [
        {row.name: row for row in measure(*drawn(200, seed))}["k1"].bias_token
        for seed in range(400)
    ]
    values, ses = np.array([r.value for r in rows]), np.array([r.se for r in rows])
    assert 0.9 < ses.mean() / values.std() < 1.1


def test_the_error_of_a_mean_per_token_knows_that_lengths_vary() -> None:
    found = []
    for seed in range(400):
        samples, _, cluster = drawn(200, seed, lengths=(1, 9))
        found.append(mean_per_token(samples, samples.log_ratio_NT + 2.0, cluster))
    values, ses = np.array([f.value for f in found]), np.array([f.se for f in found])
    assert 0.9 < ses.mean() / values.std() < 1.1


def test_completions_of_one_prompt_count_as_one_draw() -> None:
    samples, _, _ = drawn(100)
    twice = Samples(
        *(
            np.repeat(a, 2, axis=0)
            for a in (samples.logprobs_NT, samples.ref_logprobs_NT, samples.mask_NT)
        )
    )
    once = mean_per_token(samples, samples.log_ratio_NT, np.arange(100))
    again = mean_per_token(twice, twice.log_ratio_NT, np.repeat(np.arange(100), 2))
    assert (again.value, again.se) == (pytest.approx(once.value), pytest.approx(once.se))


def test_one_cluster_says_nothing_about_the_error() -> None:
    samples, exact, _ = drawn(10)
    rows = measure(samples, exact, np.zeros(10, dtype=int))
    assert math.isinf(rows[1].bias_token.se)


def test_an_overflowing_estimator_leaves_the_others_alone() -> None:
    samples = Samples(
        np.array([[-900.0, -1.0], [-1.0, -1.0]]), np.zeros((2, 2)), np.ones((2, 2), dtype=bool)
    )
    rows = {row.name: row for row in measure(samples, np.full((2, 2), 0.5), np.arange(2))}
    assert set(rows) == set(NAMES)
    assert math.isinf(rows["k3"].mean_token)
    assert math.isfinite(rows["k1"].mean_token)
    assert math.isfinite(rows["k2"].sd_seq)
