from __future__ import annotations

from kltune.diagnose.known import Known
from kltune.symptoms.curve import Quantity


def test_only_a_kl_to_the_reference_is_a_kl() -> None:
    assert Known("kl", Quantity.KL_TOKEN).is_kl
    assert Known("kl", Quantity.KL_SEQ).is_kl
    assert not Known("ppo_kl", Quantity.UPDATE_KL_TOKEN).is_kl
    assert not Known("loss/kl_avg", Quantity.LOSS_KL).is_kl


def test_another_distance_is_told_apart() -> None:
    assert Known("ppo_kl", Quantity.UPDATE_KL_TOKEN).is_other_distance
    assert Known("vllm_kl", Quantity.SAMPLER_KL_TOKEN).is_other_distance
    assert Known("debug/x", None, why="counted twice").is_other_distance
    assert not Known("kl", Quantity.KL_TOKEN).is_other_distance
