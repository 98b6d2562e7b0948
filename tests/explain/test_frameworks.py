from __future__ import annotations

from kltune.explain.frameworks import FRAMEWORKS


def test_the_frameworks_of_the_issue_are_there() -> None:
    names = " ".join(row.name for row in FRAMEWORKS.values())
    assert all(name in names for name in ("TRL", "verl", "OpenRLHF", "NeMo-RL", "kltune"))


def test_a_beta_in_the_reward_is_raw_and_one_in_the_loss_beside_advantages() -> None:
    beta_in = {key: row.beta_in for key, row in FRAMEWORKS.items()}
    assert {key for key, unit in beta_in.items() if unit == "advantage"} == {
        "trl-grpo",
        "verl-loss",
        "openrlhf-loss",
        "nemo-grpo",
    }


def test_only_trl_ppo_logs_per_sequence() -> None:
    per_sequence = [key for key, row in FRAMEWORKS.items() if row.kl_unit == "nats/sequence"]
    assert per_sequence == ["trl-ppo"]
