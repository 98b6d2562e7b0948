from __future__ import annotations

import math
from typing import Any

import pytest

from kltune.errors import SpecError
from kltune.explain.units import Balance, UnitsQuestion, explain_units


def test_40_tokens_of_05_are_2_nats_a_sequence_and_6_a_sequence_are_15_a_token() -> None:
    # Field case E2.
    assert explain_units(UnitsQuestion(tokens=40, kl_token=0.05)).kl_seq == pytest.approx(2.0)
    assert explain_units(UnitsQuestion(tokens=40, kl_seq=6)).kl_token == pytest.approx(0.15)


def test_zieglers_target_is_a_quarter_nat_per_token() -> None:
    assert explain_units(UnitsQuestion(tokens=24, kl_seq=6)).kl_token == 0.25


def test_nats_are_bits_times_log_2() -> None:
    facts = explain_units(UnitsQuestion(kl_seq=6))
    assert facts.kl_seq_bits * math.log(2) == pytest.approx(6)
    assert facts.kl_token_bits * math.log(2) == pytest.approx(0.15)


def test_a_beta_beside_advantages_is_worth_sigma_times_as_much_reward() -> None:
    loss = explain_units(UnitsQuestion(beta=0.04, sigma_r=0.5, source="trl-grpo"))
    assert (loss.beta_reward, loss.beta_advantage) == (0.02, 0.04)
    reward = explain_units(UnitsQuestion(beta=0.05, sigma_r=0.5, source="trl-rloo"))
    assert (reward.beta_reward, reward.beta_advantage) == (0.05, 0.1)


def test_the_horizon_keeps_the_gain() -> None:
    # kl-reference.md O8
    facts = explain_units(UnitsQuestion(horizon=640, rows=64, rows_to=8192))
    assert facts.horizon_to == 81_920
    assert facts.gain == 0.1 == facts.rows_to / facts.horizon_to


def test_a_penalty_that_drowns_the_reward_is_told_with_its_ratio() -> None:
    # Field case E3.
    facts = explain_units(UnitsQuestion(sigma_r=1e-4, penalty=0.5))
    assert facts.penalty_ratio == pytest.approx(5000)
    assert facts.balance is Balance.DROWNS


def test_the_penalty_is_beta_times_kl_where_none_is_given() -> None:
    facts = explain_units(UnitsQuestion(beta=0.1, source="kltune", kl_seq=5, sigma_r=0.5))
    assert (facts.penalty, facts.penalty_ratio) == (0.5, 1.0)
    assert facts.balance is Balance.FELT
    assert explain_units(UnitsQuestion(beta=1e-4)).balance is Balance.UNFELT


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"tokens": 0}, "--tokens: must be 1 or more (got 0)"),
        ({"tokens": 1e-9}, "--tokens: must be 1 or more (got 1e-09)"),
        ({"tokens": math.inf}, "--tokens: must be 1 or more (got inf)"),
        (
            {"kl_token": 1, "kl_seq": 2},
            "--kl-token: must not be given together with --kl-seq, which is the same KL (got 1 and 2)",
        ),
        ({"kl_token": math.nan}, "--kl-token: must be a finite number (got nan)"),
        ({"kl_seq": math.inf}, "--kl-seq: must be a finite number (got inf)"),
        ({"beta": -1}, "--beta: must be 0 or more (got -1)"),
        ({"sigma_r": 0}, "--sigma-r: must be above 0 (got 0)"),
        ({"penalty": math.nan}, "--penalty: must be a finite number (got nan)"),
        ({"horizon": 0}, "--horizon: must be above 0 (got 0)"),
        ({"rows": 0}, "--rows: must be a whole number of at least 1 (got 0)"),
        ({"rows_to": 0}, "--rows-to: must be a whole number of at least 1 (got 0)"),
    ],
)
def test_bad_numbers_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError) as caught:
        explain_units(UnitsQuestion(**changes))
    assert str(caught.value) == told


def test_an_unknown_source_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SpecError, match=r"^--from: must be trl-grpo, .* or kltune \(got 'trl'\)$"):
        explain_units(UnitsQuestion(source="trl"))


def test_a_penalty_below_0_keeps_its_sign_and_is_no_penalty() -> None:
    facts = explain_units(UnitsQuestion(kl_seq=-1))
    assert (facts.penalty, facts.penalty_ratio) == (-0.02, -0.04)
    assert facts.balance is Balance.NEGATIVE
    assert explain_units(UnitsQuestion(penalty=-3)).penalty_ratio == -6
    assert explain_units(UnitsQuestion(penalty=-3)).balance is Balance.NEGATIVE
    assert explain_units(UnitsQuestion(kl_seq=0)).balance is Balance.UNFELT
