from __future__ import annotations

import pytest

from kltune.spec.algorithm import Credit
from kltune.spec.objective import ObjectiveSpec
from kltune.spec.penalty import Penalty
from kltune.spec.trial import BetaUnit, ControllerKind, KLUnit, TrialSpec
from kltune.trial.words import (
    beta_unit_words,
    both_units,
    count_words,
    duration,
    is_noise,
    limit_words,
    number,
    origin_words,
    score,
    setting_long,
    setting_short,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0248, "0.0248"),
        (0.001, "0.001"),
        (0.5, "0.5"),
        (6400, "6,400"),
        (1234.5, "1,234"),
        (1e-5, "1e-5"),
        (1.234e-7, "1.23e-7"),
        (2e6, "2e6"),
        (-0.3, "-0.3"),
        (100, "100"),
        (None, "–"),
        (float("nan"), "–"),
        (float("inf"), "–"),
    ],
)
def test_numbers_have_three_significant_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_scores_carry_their_standard_error() -> None:
    assert score(0.6123, 0.0401) == "0.612 ± 0.040"
    assert score(0.6123) == "0.612"
    assert score(None, 0.1) == "–"
    assert score(-0.0003) == "0.000"  # no minus before nothing
    assert score(0.6, float("nan")) == "0.600"


def test_a_kl_is_given_per_token_and_per_sequence() -> None:
    # field case E2
    assert both_units(0.05, 2.0) == "0.05 nats/token = 2 nats/sequence"


def test_durations_read_like_a_clock() -> None:
    assert [duration(s) for s in (0.42, 42, 185, 7800, None)] == [
        "0.4 s",
        "42 s",
        "3 min 05 s",
        "2 h 10 min",
        "–",
    ]


def test_a_setting_in_full_names_every_unit() -> None:
    setting = TrialSpec(
        beta=0.12,
        penalty=Penalty.K2_LOSS,
        controller=ControllerKind.PROPORTIONAL,
        target_kl=0.05,
        horizon=640,
        learning_rate=1e-3,
    )
    assert setting_long(setting, BetaUnit.REWARD, KLUnit.TOKEN) == (
        "k2-loss, beta 0.12 reward per nat of sequence KL, proportional to target 0.05 nats/token"
        " with horizon 640 sequences, learning rate 0.001"
    )
    assert setting_short(setting, KLUnit.SEQUENCE) == "k2-loss 0.12 → 0.05/seq h 640"


def test_beta_zero_names_no_penalty() -> None:
    setting = TrialSpec(beta=0, learning_rate=1e-3)
    assert setting_short(setting, KLUnit.TOKEN) == "no KL (beta 0)"
    assert "no KL penalty" in setting_long(setting, BetaUnit.REWARD, KLUnit.TOKEN)


@pytest.mark.parametrize(
    ("kind", "target", "short", "long"),
    [
        ("fixed", None, "", ", fixed"),
        ("schedule", None, " schedule", ", schedule"),
        (
            "threshold-1.5x",
            0.05,
            " → 0.05/tok threshold-1.5x",
            ", threshold-1.5x to target 0.05 nats/token",
        ),
        (
            "threshold",
            None,
            " → measured threshold",
            ", threshold to a target measured in the warm-up",
        ),
        (
            "proportional",
            None,
            " → measured h 640",
            ", proportional to a target measured in the warm-up with horizon 640 sequences",
        ),
    ],
)
def test_every_controller_is_named_with_its_target(
    kind: str, target: float | None, short: str, long: str
) -> None:
    setting = TrialSpec(
        beta=0.12,
        penalty=Penalty.K2_LOSS,
        controller=ControllerKind(kind),
        target_kl=target,
        horizon=640 if kind == "proportional" else None,
        learning_rate=1e-3,
    )
    assert setting_short(setting, KLUnit.TOKEN) == f"k2-loss 0.12{short}"
    assert setting_long(setting, BetaUnit.NATIVE, KLUnit.TOKEN) == (
        f"k2-loss, beta 0.12 native coefficient{long}, learning rate 0.001"
    )


@pytest.mark.parametrize(
    ("unit", "credit", "penalties", "words"),
    [
        (BetaUnit.REWARD, "sequence", [Penalty.K1_REWARD], "reward per nat of sequence KL"),
        (BetaUnit.REWARD, "reward-to-go", [], "reward per nat of sequence KL"),
        (BetaUnit.NATIVE, "length-mean", [Penalty.K1_REWARD], "native coefficient"),
        (
            BetaUnit.REWARD,
            "length-mean",
            [Penalty.K1_REWARD, None],
            "reward per nat per token of mean KL",
        ),
        (BetaUnit.REWARD, "length-mean", [Penalty.K2_LOSS], "reward per nat of sequence KL"),
        (
            BetaUnit.REWARD,
            "length-mean",
            [],
            "reward per nat per token of mean KL (in the loss: reward per nat of sequence KL)",
        ),
    ],
)
def test_the_unit_of_beta_follows_credit_and_penalty(
    unit: BetaUnit, credit: Credit, penalties: list[Penalty | None], words: str
) -> None:
    assert beta_unit_words(unit, credit, *penalties) == words


def test_the_limits_are_named() -> None:
    def words(kl: float | None, **also: float) -> str:
        limits = {name: {"min": least} for name, least in also.items()}
        return limit_words(ObjectiveSpec.model_validate({"kl_limit": kl, "also": limits}))

    assert words(None) == words(0.5) == "the KL limit"
    assert words(0.5, tone=1) == "the limits on KL and tone"
    assert words(None, tone=1) == "the limit on tone"
    assert words(0.5, tone=1, breadth=0) == "the limits on KL, tone and breadth"
    looked_at = ObjectiveSpec.model_validate({"also": {"tone": {}}})
    assert limit_words(looked_at) == "the KL limit"


def test_a_repeat_is_named_by_its_seed() -> None:
    assert origin_words("noise:3") == "repeat on seed 3, for the noise floor"
    assert (is_noise("noise:3"), is_noise("zero")) == (True, False)


def test_a_baseline_that_a_spec_writes_out_is_no_published_recipe() -> None:
    assert origin_words("baseline:verl-ppo") == "recipe verl-ppo"
    assert origin_words("baseline:my-verl") == "baseline my-verl"


def test_one_is_not_many() -> None:
    assert [count_words(n, "trial") for n in (0, 1, 1200)] == [
        "0 trials",
        "1 trial",
        "1,200 trials",
    ]
