from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from fake_study import SIGMA_R, SPEC, trial, write_study

from kltune.report.native import native_coefficient, native_words, typed_coefficient, typed_words
from kltune.report.rows import StudyRows, read_study
from kltune.spec.penalty import Penalty
from kltune.trial.words import number

STD_R = 0.8
REWARDS = [penalty for penalty in Penalty if penalty.in_reward]
SHAPED = {"normalize": "none", "scale": 2.0}


def read(folder: Path, penalty: Penalty, beta: float = 0.124, **spec: Any) -> StudyRows:
    trainer = {**SPEC["trainer"], **spec.pop("trainer", {})}
    fake = trial(beta, penalty=penalty)
    study = read_study(write_study(folder, [fake], trainer=trainer, allow_biased=True, **spec))
    return dataclasses.replace(study, reference={**study.reference, "std_r": STD_R})


def recorded(study: StudyRows, coefficient: list[float], beta: list[float] | None = None) -> str:
    """The words where the steps recorded these, spread evenly over the 80 steps."""
    (row,) = study.trials
    each = 80 // len(coefficient)
    columns = {"coefficient": tuple(c for c in coefficient for _ in range(each))}
    if beta is not None:
        columns["beta"] = tuple(b for b in beta for _ in range(each))
    curve = dataclasses.replace(row.curve, **columns)
    return native_words(study, dataclasses.replace(row, curve=curve))


def test_a_loss_coefficient_is_beta_over_sigma(tmp_path: Path) -> None:
    study = read(tmp_path, Penalty.K2_LOSS)
    text = native_words(study, study.trials[0])
    assert f"KL coefficient {0.124 / SIGMA_R:.1f} in the loss" in text
    assert text.endswith("; = beta 0.124 / sigma_R 0.62")


def test_a_reward_coefficient_is_beta_itself(tmp_path: Path) -> None:
    study = read(tmp_path, Penalty.K1_REWARD)
    assert "KL coefficient 0.124 in the reward" in native_words(study, study.trials[0])


@pytest.mark.parametrize("penalty", REWARDS)
def test_a_reward_penalty_names_what_it_pays(tmp_path: Path, penalty: Penalty) -> None:
    study = read(tmp_path, penalty)
    paid = {
        "k1-reward": "log-ratio)",
        "exact-full": "exact KL over the vocabulary)",
        "exact-reward": "exact KL over the vocabulary)",
        "k2-reward": "k2 = log-ratio² / 2)",
        "k3-reward": "k3 = exp(−log-ratio) − 1 + log-ratio)",
        "abs-reward": "absolute log-ratio)",
    }[penalty.value]
    text = native_words(study, study.trials[0])
    assert (
        f"score − 0.124 × (sum over the tokens of the completion: {paid}, before the baseline"
        in text
    )


@pytest.mark.parametrize(
    ("penalty", "credit", "words"),
    [
        (Penalty.K1_REWARD, "length-mean", "(mean over the tokens of the completion: "),
        (Penalty.K1_REWARD, "reward-to-go", "(sum over the token and the later ones: "),
        (Penalty.EXACT_FULL, "reward-to-go", "(sum over the later tokens: "),
    ],
)
def test_a_reward_penalty_names_who_pays(
    tmp_path: Path, penalty: Penalty, credit: str, words: str
) -> None:
    study = read(tmp_path, penalty, trainer={"kl": {"credit": credit, "clip": 3}})
    text = native_words(study, study.trials[0])
    assert words in text
    assert ", clipped to ± 3 nats)" in text


def test_ppo_pays_token_by_token_before_the_generalised_advantages(tmp_path: Path) -> None:
    study = read(tmp_path, Penalty.K1_REWARD, trainer={"algorithm": "ppo"})
    text = native_words(study, study.trials[0])
    assert "each token's reward is − 0.124 × its log-ratio" in text
    assert text.endswith("before the generalised advantages")
    assert "baseline" not in text


def test_a_moving_beta_is_given_at_the_step_to_stop_at(tmp_path: Path) -> None:
    study = read(tmp_path, Penalty.K2_LOSS)
    (row,) = study.trials
    assert row.peak is not None
    assert 20 < row.peak.step <= 80
    betas = [0.4, 0.1]
    text = recorded(study, [b / SIGMA_R for b in betas], betas)
    at = betas[row.peak.step > 40]
    assert f"KL coefficient {number(at / SIGMA_R)} " in text
    assert text.endswith(f"; = beta {at:g} / sigma_R 0.62")


def test_a_moving_beta_in_the_reward_is_given_at_the_step_to_stop_at(tmp_path: Path) -> None:
    study = read(tmp_path, Penalty.K1_REWARD, objective={"metric": "gold_final", "kl_limit": 0.5})
    text = recorded(study, [0.4, 0.1], [0.4, 0.1])
    assert "KL coefficient 0.1 at step 80 (from 0.1 to 0.4 up to there) in the reward" in text
    assert "score − 0.1 × (" in text
    (row,) = study.trials
    curve = dataclasses.replace(row.curve, coefficient=(*[0.4] * 40, *[0.1] * 40))
    assert native_coefficient(study, dataclasses.replace(row, curve=curve)) == 0.1


def test_an_equation_that_the_record_denies_is_not_printed(tmp_path: Path) -> None:
    study = read(tmp_path, Penalty.K2_LOSS)
    assert "=" not in recorded(study, [0.3])
    assert "; = beta" in recorded(study, [0.124 / SIGMA_R])


@pytest.mark.parametrize(
    ("trainer", "coefficient", "words"),
    [
        ({"algorithm": "grpo"}, 0.124 / SIGMA_R, "; = beta 0.124 / sigma_R 0.62"),
        ({"algorithm": "reinforce"}, 0.124 / STD_R, "; = beta 0.124 / std_r 0.8"),
        ({"algorithm": "ppo"}, 0.124 / STD_R, "; = beta 0.124 / std_r 0.8"),
        ({"algorithm": "ppo", "critic": {"whiten": False}}, 0.124, "; = beta 0.124"),
        ({"algorithm": "rloo"}, 0.124, "; = beta 0.124"),
        ({"algorithm": "dr-grpo"}, 0.124 * 7 / 8, "; = beta 0.124 × (G − 1) / G, G = 8"),
    ],
)
@pytest.mark.parametrize("penalty", [Penalty.K2_LOSS, Penalty.EXACT_FULL])
def test_the_loss_s_own_coefficient_follows_the_algorithm(
    tmp_path: Path, trainer: dict[str, Any], coefficient: float, words: str, penalty: Penalty
) -> None:
    study = read(tmp_path, penalty, trainer=trainer)
    text = recorded(study, [coefficient])
    assert text.endswith(words)
    is_divided = "/ s" in words
    assert ("undivided" in text) is not is_divided
    shown = f"{coefficient:.3g}".rstrip("0")
    place = "with coefficient" if penalty is Penalty.EXACT_FULL else "KL coefficient"
    assert f"{place} {shown}" in text
    if penalty is Penalty.EXACT_FULL:
        assert "score − 0.124 × (" in text or "reward is − 0.124 × its" in text
    (row,) = study.trials
    silent = dataclasses.replace(row, curve=dataclasses.replace(row.curve, coefficient=(), step=()))
    silent = dataclasses.replace(silent, curve=dataclasses.replace(silent.curve, beta=()))
    assert native_coefficient(study, silent) == pytest.approx(coefficient)


def test_a_native_coefficient_in_the_loss_has_no_equation(tmp_path: Path) -> None:
    study = read(tmp_path, Penalty.K2_LOSS, beta_unit="native")
    assert "=" not in recorded(study, [0.124])


def test_a_shaped_reward_has_a_coefficient_of_its_own(tmp_path: Path) -> None:
    study = read(tmp_path, Penalty.K1_REWARD, trainer={"reward": SHAPED})
    text = recorded(study, [0.248])
    assert "KL coefficient 0.124 in the reward: raw proxy score − 0.124 × (" in text
    assert (
        "beside the shaped score that was trained on (trainer.reward) the coefficient is 0.248"
        in text
    )
    native = read(
        tmp_path / "native", Penalty.K1_REWARD, trainer={"reward": SHAPED}, beta_unit="native"
    )
    text = recorded(native, [0.124])
    assert "shaped score (trainer.reward) − 0.124 × (" in text
    assert "raw" not in text


def test_beside_undivided_advantages_the_coefficient_is_for_the_shaped_score(
    tmp_path: Path,
) -> None:
    trainer = {"reward": SHAPED, "algorithm": "rloo"}
    text = recorded(read(tmp_path, Penalty.K2_LOSS, trainer=trainer), [0.248])
    assert "KL coefficient 0.248 in the loss" in text
    assert "for the shaped score that was trained on" in text
    assert "=" not in text


def test_what_to_type_is_the_factor_of_the_beta_that_was_asked_for(tmp_path: Path) -> None:
    study = read(tmp_path, Penalty.K2_LOSS)
    (row,) = study.trials
    steps = len(row.curve.step)
    # a controller moved beta fourfold; the record of both gives the factor
    curve = dataclasses.replace(
        row.curve, beta=(0.496,) * steps, coefficient=(0.496 / 0.5,) * steps
    )
    moved = dataclasses.replace(row, curve=curve)
    assert typed_coefficient(study, moved) == pytest.approx(0.124 / 0.5)
    assert typed_words(study, moved, " at the start").startswith("0.248 at the start in the loss,")
    empty = dataclasses.replace(row.curve, step=(), beta=(), coefficient=())
    assert typed_coefficient(study, dataclasses.replace(row, curve=empty)) == pytest.approx(
        0.124 / SIGMA_R
    )


@pytest.mark.parametrize(
    ("penalty", "trainer", "words"),
    [
        (
            Penalty.K1_REWARD,
            {},
            "0.124 in the reward, times the log-ratio summed over the completion",
        ),
        (Penalty.K1_REWARD, {"kl": {"credit": "length-mean"}}, "averaged over the completion"),
        (Penalty.K1_REWARD, {"kl": {"credit": "reward-to-go"}}, "of each token and later ones"),
        (Penalty.K1_REWARD, {"algorithm": "ppo"}, "times the log-ratio of each token"),
        (
            Penalty.EXACT_FULL,
            {},
            f"0.124 in the reward, times the exact KL over the vocabulary summed over the completion; and {number(0.124 / SIGMA_R)} in the loss",
        ),
        (Penalty.K3_LOSS, {"algorithm": "rloo"}, "in the loss, beside undivided advantages"),
        (
            Penalty.K1_REWARD,
            {"reward": {"scale": 2.0}},
            "summed over the completion, beside the shaped score (trainer.reward)",
        ),
    ],
)
def test_where_it_goes_is_said_in_few_words(
    tmp_path: Path, penalty: Penalty, trainer: dict[str, Any], words: str
) -> None:
    study = read(tmp_path, penalty, trainer={**SPEC["trainer"], **trainer})
    (row,) = study.trials
    steps = len(row.curve.step)
    paid = 0.124 if penalty is Penalty.K1_REWARD else 0.124 / SIGMA_R
    curve = dataclasses.replace(row.curve, coefficient=(paid,) * steps)
    assert words in typed_words(study, dataclasses.replace(row, curve=curve))


def test_of_no_penalty_nothing_is_typed(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, [trial(0.0)]))
    assert typed_words(study, study.trials[0]) == "0"
    assert typed_coefficient(study, study.trials[0]) == 0
