from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.gold import Checkpoint, gold_drop, logged_gold_drop
from kltune.symptoms.symptom import Symptom

NUM_PROMPTS = 64


def run(
    golds: Sequence[float],
    kls: Sequence[float],
    noise: float = 0.3,
    seed: int = 0,
    allowed: Sequence[bool] = (),
) -> list[Checkpoint]:
    """Checkpoints every 10 steps; prompts differ by 1 from each other and by ``noise`` between checkpoints."""
    rng = np.random.default_rng(seed)
    level = rng.normal(0, 1, NUM_PROMPTS)
    level -= level.mean()
    found: list[Checkpoint] = []
    for i, (gold, kl) in enumerate(zip(golds, kls, strict=True)):
        drawn = rng.normal(0, noise, NUM_PROMPTS)
        by_prompt = gold + level + drawn
        is_allowed = allowed[i] if allowed else True
        found.append(Checkpoint(10 * (i + 1), tuple(map(float, by_prompt)), kl, is_allowed))
    return found


def drop(points: Sequence[Checkpoint], patience: int = 2) -> Symptom | None:
    return gold_drop(points, patience=patience)


def test_gold_that_falls_while_kl_goes_on_is_past_its_peak_and_the_best_checkpoint_is_named() -> (
    None
):
    symptom = drop(run([0.5, 0.9, 0.5, 0.4], [0.1, 0.2, 0.5, 0.8]))
    assert symptom is not None
    assert symptom.numbers["best_step"] == 20
    assert (symptom.first_step, symptom.last_step) == (30, 40)
    assert "at step 20 (kl 0.2 nats/token), the best checkpoint" in symptom.detail


def test_the_field_case_names_the_second_checkpoint() -> None:  # field case E5
    points = run([0.5, 0.6, 0.5, 0.4], [1, 4, 9, 16], noise=1e-3)
    symptom = gold_drop(points, unit="nats/sequence")
    assert symptom is not None
    assert symptom.numbers["best_step"] == 20
    assert "gold fell from 0.6 at step 20 (kl 4 nats/sequence)" in symptom.detail
    assert "to 0.4 at step 40 (kl 16 nats/sequence)" in symptom.detail


def test_it_must_be_seen_as_often_as_patience_says() -> None:
    points = run([0.5, 0.9, 0.4], [0.1, 0.2, 0.8])
    assert drop(points) is None
    assert drop(points, patience=1) is not None
    assert drop(run([0.5, 0.9, 0.4, 0.9], [0.1, 0.2, 0.8, 0.9])) is None


def test_differences_are_paired_over_prompts() -> None:
    """Prompts differ by 1, so 0.2 over 64 of them is lost unless each is compared with itself."""
    assert drop(run([0.5, 0.9, 0.7, 0.7], [0.1, 0.2, 0.6, 0.8], noise=0.2)) is not None


def test_gold_that_falls_at_less_kl_is_no_over_optimisation_nor_at_less_than_the_factor_asks() -> (
    None
):
    fall = run([0.5, 0.9, 0.5, 0.4], [0.1, 0.2, 0.3, 0.4])
    assert drop(fall) is not None
    assert gold_drop(fall, kl_factor=2.25) is None
    assert drop(run([0.5, 0.9, 0.5, 0.4], [0.1, 0.2, 0.1, 0.1])) is None


def test_only_an_allowed_checkpoint_is_a_peak() -> None:
    points = run([0.5, 0.9, 0.5, 0.4], [0.1, 0.2, 0.5, 0.8], allowed=[False] * 4)
    assert drop(points) is None
    first = run([0.6, 0.9, 0.2, 0.1], [0.1, 0.9, 1.2, 1.5], allowed=[True, *[False] * 3])
    symptom = drop(first)
    assert symptom is not None
    assert symptom.numbers["best_step"] == 10


def test_identical_drops_on_all_prompts_are_certain() -> None:
    points = [Checkpoint(i, (gold,) * 8, kl, is_allowed=True) for i, gold, kl in
              [(1, 0.5, 0.1), (2, 0.4, 0.4), (3, 0.4, 0.5)]]  # fmt: skip
    assert drop(points) is not None


def test_one_prompt_can_not_tell() -> None:
    points = [Checkpoint(i, (gold,), kl, is_allowed=True) for i, gold, kl in
              [(1, 0.9, 0.1), (2, 0.1, 0.5), (3, 0.0, 0.6)]]  # fmt: skip
    assert drop(points) is None


@pytest.mark.parametrize(("patience", "chance"), [(1, 0.0005), (2, 0.01)])
def test_a_flat_gold_is_hardly_ever_a_drop_however_many_checkpoints_there_were(
    patience: int, chance: float
) -> None:
    kls = [0.01, *[0.5] * 15]
    fired = sum(
        any(
            gold_drop(points[:n], patience=patience, chance=chance)
            for n in range(1, len(points) + 1)
        )
        for points in (run([0.5] * 16, kls, noise=0.5, seed=seed) for seed in range(60))
    )
    assert fired <= 1


def log(**columns: Sequence[float]) -> Curve:
    names = [Quantity(name) for name in columns]
    rows = zip(*columns.values(), strict=True)
    return Curve.of_rows((i + 1, dict(zip(names, row, strict=True))) for i, row in enumerate(rows))


def test_a_log_of_means_alone_names_the_peak_too() -> None:  # field case E5
    symptom = logged_gold_drop(log(gold=[0.5, 0.6, 0.5, 0.4], kl_seq=[1, 4, 9, 16]))
    assert symptom is not None
    assert symptom.numbers["best_step"] == 2
    assert "kl went from 4 to 16" in symptom.detail


def test_with_standard_errors_a_drop_must_exceed_them() -> None:
    golds = [0.5, 0.6, 0.5, 0.4]
    assert logged_gold_drop(log(gold=golds, gold_se=[0.05] * 4)) is None
    assert logged_gold_drop(log(gold=golds, gold_se=[0.01] * 4)) is not None


def test_a_log_whose_gold_recovers_or_whose_kl_fell_has_no_drop() -> None:
    assert logged_gold_drop(log(gold=[0.5, 0.6, 0.4, 0.7])) is None
    assert logged_gold_drop(log(gold=[0.5, 0.6, 0.4, 0.5])) is None
    assert logged_gold_drop(log(gold=[0.5, 0.6, 0.5, 0.4], kl_seq=[1, 4, 3, 2])) is None
    assert logged_gold_drop(log(gold=[0.6, 0.5])) is None
