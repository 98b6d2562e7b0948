"""The settings of a run by any framework's names in, those that the rules look at out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kltune.diagnose.sources.raw import number

ENDED_BY: Final = "ended_by"
"""Why a kltune trial ended: an outcome, no setting."""

_NAMES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "beta": (
            "beta",
            "init_kl_coef",
            "kl_coef",
            "algo/kl/init_coef",
            "loss_fn/reference_policy_kl_penalty",
        ),
        "learning_rate": (
            "learning_rate",
            "actor_rollout_ref/actor/optim/lr",
            "actor_learning_rate",
            "policy/optimizer/kwargs/lr",
        ),
        "group_size": (
            "group_size",
            "num_generations",
            "actor_rollout_ref/rollout/n",
            "n_samples_per_prompt",
            "grpo/num_generations_per_prompt",
            "num_samples_per_prompt_rollout",
        ),
        "max_new_tokens": (
            "max_new_tokens",
            "max_completion_length",
            "data/max_response_length",
            "generate_max_len",
            "policy/generation/max_new_tokens",
            "response_length",
        ),
        "temperature": (
            "temperature",
            "actor_rollout_ref/rollout/temperature",
            "policy/generation/temperature",
        ),
        "algorithm": ("algorithm", "algorithm/adv_estimator", "advantage_estimator"),
        "penalty": ("penalty", "actor_rollout_ref/actor/kl_loss_type", "kl_estimator"),
        "controller": ("controller", "algorithm/kl_ctrl/type"),
        "target_kl": ("target_kl", "algorithm/kl_ctrl/target_kl", "kl_target"),
        "horizon": ("horizon", "algorithm/kl_ctrl/horizon", "kl_horizon"),
        "steps": ("steps", "max_steps", "trainer/total_training_steps"),
        "kl_limit": ("kl_limit",),
        "kl_unit": ("kl_unit",),
        "beta_unit": ("beta_unit",),
        "sigma_r": ("sigma_r",),
        "seed": ("seed",),
        ENDED_BY: (ENDED_BY,),
    }
)
LOSS_MODE: Final = "actor_rollout_ref/actor/loss_agg_mode"
LOSS_TYPE: Final = "actor_rollout_ref/actor/kl_loss_type"
_IN_LOSS: Final = "actor_rollout_ref/actor/use_kl_loss"
_IN_REWARD: Final = "algorithm/use_kl_in_reward"
_LOSS_COEF: Final = "actor_rollout_ref/actor/kl_loss_coef"
_REWARD_COEF: Final = "algorithm/kl_ctrl/kl_coef"
REWARD_TYPE: Final = "algorithm/kl_penalty"


def facts_of(raw: Mapping[str, object], framework: str) -> dict[str, float | str]:
    """Pick the settings; a number is one also where the tracker keeps it as text."""
    found: dict[str, float | str] = {}
    for fact, names in _NAMES.items():
        value = next((raw[name] for name in names if raw.get(name) not in (None, "", "None")), None)
        if value is not None and (read := _plain(value)) is not None:
            found[fact] = read
    if framework == "verl":
        found |= _verl_kl(raw)
    if framework.startswith("trl-"):
        found.setdefault("algorithm", framework.removeprefix("trl-"))
    return found


def _plain(value: object) -> float | str | None:
    read = number(value)
    if read is not None:
        return read
    return value if isinstance(value, str) else None


def _verl_kl(raw: Mapping[str, object]) -> dict[str, float | str]:
    """What is in force: without one of the two flags, verl has no KL at all."""
    flags = [raw.get(_IN_LOSS), raw.get(_IN_REWARD)]
    if all(flag is None for flag in flags):
        return {}
    in_loss, in_reward = (str(flag).lower() == "true" for flag in flags)
    if not in_loss and not in_reward:
        return {"beta": 0.0}
    coefficient, kind, place = (
        (_LOSS_COEF, LOSS_TYPE, "loss") if in_loss else (_REWARD_COEF, REWARD_TYPE, "reward")
    )
    found: dict[str, float | str] = {}
    if (beta := number(raw.get(coefficient))) is not None:
        found["beta"] = beta
    if isinstance(estimator := raw.get(kind), str):
        found["penalty"] = f"{estimator}-{place}"
    return found
