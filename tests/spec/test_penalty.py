from __future__ import annotations

from kltune.spec.penalty import NATURES, Penalty


def test_every_penalty_has_a_place_and_a_nature() -> None:
    assert set(NATURES) == set(Penalty)
    for penalty in Penalty:
        placement = penalty.value.rpartition("-")[2]
        expected = {"reward": (True, False), "loss": (False, True), "full": (True, True)}
        assert (penalty.in_reward, penalty.in_loss) == expected[placement]
        assert penalty.nature.gradient


def test_only_penalties_without_a_kl_gradient_are_refused() -> None:
    refused = {penalty.value for penalty in Penalty if penalty.nature.refusal is not None}
    assert refused == {
        "k1-loss", "abs-loss", "abs-reward", "k2-reward", "k3-reward", "exact-reward",
    }  # fmt: skip
