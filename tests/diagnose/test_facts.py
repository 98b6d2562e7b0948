from __future__ import annotations

from kltune.diagnose.facts import facts_of

_ACTOR = "actor_rollout_ref/actor"


def test_settings_are_found_under_each_frameworks_names() -> None:
    trl = {"beta": "0.04", "num_generations": 8, "max_completion_length": "512", "other": 1}
    assert facts_of(trl, "trl") == {"beta": 0.04, "group_size": 8.0, "max_new_tokens": 512.0}
    verl = {"actor_rollout_ref/rollout/n": "5", f"{_ACTOR}/optim/lr": "1e-06"}
    assert facts_of(verl, "verl") == {"group_size": 5.0, "learning_rate": 1e-6}


def test_verl_without_a_flag_has_no_kl_whatever_its_coefficients_say() -> None:
    raw = {
        f"{_ACTOR}/use_kl_loss": "False",
        "algorithm/use_kl_in_reward": "False",
        "algorithm/kl_ctrl/kl_coef": "0.001",
        f"{_ACTOR}/kl_loss_coef": "0.001",
    }
    assert facts_of(raw, "verl")["beta"] == 0.0


def test_verls_flag_says_which_coefficient_is_in_force() -> None:
    raw = {
        f"{_ACTOR}/use_kl_loss": "True",
        "algorithm/use_kl_in_reward": "False",
        "algorithm/kl_ctrl/kl_coef": "0.5",
        f"{_ACTOR}/kl_loss_coef": "0.001",
        f"{_ACTOR}/kl_loss_type": "low_var_kl",
        "algorithm/kl_penalty": "kl",
    }
    assert facts_of(raw, "verl") == {"beta": 0.001, "penalty": "low_var_kl-loss"}
    other = {**raw, f"{_ACTOR}/use_kl_loss": False, "algorithm/use_kl_in_reward": True}
    assert facts_of(other, "verl") == {"beta": 0.5, "penalty": "kl-reward"}


def test_the_trainer_names_the_algorithm_where_the_settings_do_not() -> None:
    assert facts_of({}, "trl-ppo") == {"algorithm": "ppo"}


def test_what_is_absent_is_no_fact() -> None:
    assert facts_of({"beta": "", "target_kl": None, "penalty": "None"}, "kltune") == {}
