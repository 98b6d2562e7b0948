"""Field cases that a spec refuses: settings without effect, settings that are not there, two places for one KL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spec_files import minimal, problems_of

from kltune.spec.penalty import Penalty


def told(folder: Path, penalty: str, baselines: list[str] | None = None, **kl: Any) -> list[str]:
    spec = minimal()
    spec["search"]["penalty"] = penalty
    spec["trainer"]["kl"] = kl
    spec |= {"baselines": baselines or [], "allow_biased": True}
    return problems_of(folder, spec)


@pytest.mark.parametrize("penalty", list(Penalty))
def test_a_kl_is_paid_in_one_place_that_its_name_says(penalty: Penalty) -> None:
    # field case A49; exact-full is one gradient in two parts with one price (test_prices)
    places = {"reward": penalty.in_reward, "loss": penalty.in_loss}
    named = penalty.value.rsplit("-", 1)[1]
    assert places == {"reward": named in ("reward", "full"), "loss": named in ("loss", "full")}


@pytest.mark.parametrize(
    "path",
    [
        "search.reward_coefficient",
        "search.kl_loss_coef",
        "trainer.kl.coefficient",
        "trainer.kl.use_kl_in_reward",
        "trainer.reward.kl",
    ],
)
def test_a_second_coefficient_is_refused_by_name(tmp_path: Path, path: str) -> None:
    # field case A49: in the loss, and a coefficient for the reward given
    (line,) = problems_of(tmp_path, minimal(), f"{path}=0.1")
    assert line.startswith(f"{path}: Extra inputs are not permitted (got 0.1)")


@pytest.mark.parametrize("credit", ["sequence", "reward-to-go", "length-mean"])
def test_who_pays_in_the_reward_is_refused_where_nothing_is_paid_there(
    tmp_path: Path, credit: str
) -> None:
    # field case A49: a setting that has no effect
    (line,) = told(tmp_path, "k2-loss", credit=credit)
    assert line == (
        "trainer.kl.credit: has no effect, since no KL is paid in the reward (k2-loss): remove it"
    )
    assert told(tmp_path, "k1-reward", credit=credit) == []
    assert (told(tmp_path, "exact-full", credit=credit) == []) is (credit != "length-mean")
    assert told(tmp_path, "k2-loss", ["instructgpt"], credit=credit) == []


def test_top_k_is_refused_where_no_penalty_uses_it(tmp_path: Path) -> None:
    # field case A49: a setting that has no effect
    (line,) = told(tmp_path, "k3-loss", top_k=8)
    assert line == "trainer.kl.top_k: has no effect, since penalty is never topk-loss: remove it"
    assert told(tmp_path, "topk-loss", top_k=8) == []


@pytest.mark.parametrize(
    "path",
    [
        "trainer.repetition_penalty",
        "trainer.top_p",
        "trainer.top_k",
        "trainer.min_new_tokens",
        "model.repetition_penalty",
    ],
)
def test_what_would_change_the_sampled_distribution_is_refused_by_name(
    tmp_path: Path, path: str
) -> None:
    # field case A43: rollout log-probs are those of a plain forward, so nothing may come between
    (line,) = problems_of(tmp_path, minimal(), f"{path}=1.3")
    assert line.startswith(f"{path}: Extra inputs are not permitted (got 1.3)")


@pytest.mark.parametrize("name", ["target_kl", "early_stopping", "kl_early_stop", "mask_truncated"])
def test_what_the_trainer_has_not_is_refused_by_name(tmp_path: Path, name: str) -> None:
    # field cases A53 and A55: no early stop within the passes over a rollout; A30: nothing is masked out
    (line,) = problems_of(tmp_path, minimal(), f"trainer.{name}=0.02")
    assert line.startswith(f"trainer.{name}: Extra inputs are not permitted (got 0.02)")
