from __future__ import annotations

from kltune.metrics.record import TokenProfile
from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.local import LocalFloors, local_kl

EDGES = (0, 1, 2, 4)


def run(mean: float, p99: float = 0.1, steps: int = 10) -> Curve:
    return Curve.of_rows(
        (step, {Quantity.KL_TOKEN: mean, Quantity.KL_P99_TOKEN: p99})
        for step in range(1, steps + 1)
    )


def places(*kl: float, tokens: tuple[int, ...] = (8, 64, 64), steps: int = 10):
    return {step: TokenProfile(EDGES, kl, tokens) for step in range(1, steps + 1)}


def test_one_position_that_breaks_while_the_mean_looks_fine_is_named() -> None:
    symptom = local_kl(run(0.2), places(0.1, 4.0, 0.1))
    assert symptom is not None
    assert (
        symptom.detail
        == "kl at position 1 is 4 nats/token while its mean is 0.2 nats/token (steps 6-10)"
    )
    several = local_kl(run(0.2), places(0.1, 0.1, 4.0))
    assert several is not None
    assert "positions 2-3" in several.detail


def test_one_token_in_a_hundred_that_breaks_is_seen_without_a_profile() -> None:
    symptom = local_kl(run(0.2, p99=12.0), {})
    assert symptom is not None
    assert "one token in a hundred has a kl above 12 nats" in symptom.detail


def test_a_large_mean_is_no_hidden_breakage() -> None:
    assert local_kl(run(1.1, p99=12.0), places(0.1, 9.9, 0.1)) is None


def test_an_early_kl_that_is_tiny_and_all_in_one_place_is_fine() -> None:
    assert local_kl(run(1e-4, p99=0.01), places(0.0, 2e-3, 0.0)) is None


def test_a_place_of_a_handful_of_tokens_does_not_count() -> None:
    assert local_kl(run(0.2), places(9.0, 0.1, 0.1, tokens=(1, 64, 64))) is None


def test_only_the_window_counts_and_other_buckets_are_left_out() -> None:
    old = {1: TokenProfile(EDGES, (0.1, 9.0, 0.1), (8, 64, 64))}
    assert local_kl(run(0.2), old) is None
    other = {
        9: TokenProfile((0, 4), (9.0,), (136,)),
        10: TokenProfile(EDGES, (0.1,) * 3, (8, 64, 64)),
    }
    assert local_kl(run(0.2), other) is None


def test_floors_can_be_moved() -> None:
    floors = LocalFloors(bucket_token=0.5, ratio=2.0)
    assert local_kl(run(0.2), places(0.1, 1.0, 0.1), floors=floors) is not None
