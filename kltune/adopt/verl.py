"""verl's keys in, what they set in kltune's words out: the way back of kltune/export/verl.py, with the same traps.

Read in verl's tags on record in kltune/export/keys (files as named there).
"""

from __future__ import annotations

from typing import Any, Final

from kltune.adopt.keys import Keys
from kltune.adopt.reading import (
    KLPart,
    Reading,
    above_zero,
    bound,
    high_clip,
    minibatches,
    reading,
)
from kltune.errors import SpecError
from kltune.spec.algorithm import OWN_AGGREGATION
from kltune.spec.penalty import Penalty

_ACTOR: Final = "actor_rollout_ref.actor"
_ROLLOUT: Final = "actor_rollout_ref.rollout"
_PLUS: Final = ((0, 6, 0), (0, 8, 0))
"""From the first on the estimators with a + exist; before the second they raise."""
_BY_SEQUENCES: Final = (0, 7, 1)
"""First release whose seq-mean-token-sum-norm is divided by the number of responses."""

_SAME: Final = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}
_IN_REWARD: Final = {
    "k1": Penalty.K1_REWARD,
    "k2": Penalty.K2_REWARD,
    "k3": Penalty.K3_REWARD,
    "abs": Penalty.ABS_REWARD,
}
_IN_LOSS: Final = {
    "k1": Penalty.K1_LOSS,
    "k2": Penalty.K2_LOSS,
    "k3": Penalty.K3_LOSS,
    "abs": Penalty.ABS_LOSS,
}
_ALGORITHMS: Final = {
    "gae": "ppo",
    "grpo": "grpo",
    "rloo": "rloo",
    "reinforce_plus_plus": "reinforce",
}
_AGGREGATIONS: Final = {
    "token-mean": "token-mean",
    "seq-mean-token-mean": "seq-mean-token-mean",
    "seq-mean-token-sum": "seq-mean-token-sum",
    "token-sum": "seq-mean-token-sum",
    "seq-mean-token-sum-norm": "constant",
}


def read_verl(keys: Keys) -> Reading:
    """Read it.

    Raises:
        SpecError: a setting that kltune has no words for; the message names the key.
    """
    algorithm = _algorithm(keys)
    kl = _kl(keys)
    prompts = keys.size("data.train_batch_size", "prompts")
    group = keys.size(f"{_ROLLOUT}.n", "group_size")
    part = keys.whole(f"{_ACTOR}.ppo_mini_batch_size", field="minibatches") or prompts
    names = ("data.train_batch_size", f"{_ACTOR}.ppo_mini_batch_size")
    trainer: dict[str, Any] = {
        "algorithm": algorithm,
        "minibatches": minibatches(keys, prompts, part, names),
        "epochs": keys.whole(f"{_ACTOR}.ppo_epochs", field="epochs"),
        "max_new_tokens": keys.whole("data.max_response_length", field="max_new_tokens"),
        "temperature": keys.number(f"{_ROLLOUT}.temperature", field="temperature"),
        "learning_rate": keys.number(f"{_ACTOR}.optim.lr", field="learning_rate"),
        "weight_decay": keys.number(f"{_ACTOR}.optim.weight_decay", field="weight_decay"),
        "max_grad_norm": keys.number(f"{_ACTOR}.grad_clip", field="max_grad_norm"),
        "entropy_bonus": keys.number(f"{_ACTOR}.entropy_coeff", field="entropy_bonus"),
        "critic": _critic(keys) if algorithm == "ppo" else None,
        **_aggregation(keys, algorithm),
        **_clip(keys),
    }
    if algorithm == "reinforce" and kl.penalty is not None and kl.penalty.in_reward:
        trainer["kl"] = {"credit": "reward-to-go"}  # its returns are summed from the token on
    rank = keys.whole("actor_rollout_ref.model.lora_rank")
    sizes = {
        "prompts": prompts,
        "group": group,
        "steps": keys.whole("trainer.total_training_steps", field="steps"),
        "lora_rank": rank or None,
    }
    _others(keys)
    base = keys.loose("actor_rollout_ref.model.path") or "the configuration's model"
    return reading(keys, kl, trainer, sizes, base=base)


def _algorithm(keys: Keys) -> str:
    name = keys.word("algorithm.adv_estimator", field="algorithm")
    if name not in _ALGORITHMS:
        near = " (the nearest is grpo or reinforce_plus_plus)" if "baseline" in name else ""
        raise SpecError(
            f"{keys.given.where}: algorithm.adv_estimator: kltune has no algorithm like {name!r}{near}; it reads "
            f"{', '.join(_ALGORITHMS)}"
        )
    if name != "grpo":
        return _ALGORITHMS[name]
    key = "algorithm.norm_adv_by_std_in_grpo"
    divides = keys.switch(key) if keys.is_given(key) or keys.is_listed(key) else True
    return "grpo" if divides else "dr-grpo"


def _kl(keys: Keys) -> KLPart:
    switch = "algorithm.use_kl_in_reward"
    in_loss = keys.switch(f"{_ACTOR}.use_kl_loss", field="penalty")
    if keys.is_listed(switch) or keys.is_given(switch):
        in_reward = keys.switch(switch)
    else:
        in_reward = not in_loss  # up to 0.3.x the reward pays it unless the loss does
    if in_reward and in_loss:
        raise SpecError(
            f"{keys.given.where}: {switch} and {_ACTOR}.use_kl_loss are both on: the KL is paid twice, in two units, "
            "which kltune has no setting for; switch one off"
        )
    if in_reward:
        return _in_reward(keys)
    if in_loss:
        return _in_loss(keys)
    for key, other in (
        ("algorithm.kl_ctrl.kl_coef", switch),
        (f"{_ACTOR}.kl_loss_coef", f"{_ACTOR}.use_kl_loss"),
    ):
        if keys.is_given(key) and keys.number(key):
            keys.warnings.append(
                f"{key} is set and {other} is off, so verl {keys.version} has no KL at all: read as beta = 0"
            )
    return KLPart()


def _in_reward(keys: Keys) -> KLPart:
    name = keys.word("algorithm.kl_penalty", field="penalty").removesuffix("+")
    penalty = _IN_REWARD.get(_SAME.get(name, name))
    if penalty is None:
        raise SpecError(f"{keys.given.where}: algorithm.kl_penalty: verl does not have {name!r}")
    beta = keys.price("algorithm.kl_ctrl.kl_coef")
    if beta <= 0:
        return KLPart()
    if keys.word("algorithm.kl_ctrl.type") != "adaptive":
        return KLPart(penalty, beta, "reward")
    target = keys.number("algorithm.kl_ctrl.target_kl", field="target_kl", is_vital=True)
    horizon = keys.number("algorithm.kl_ctrl.horizon", field="horizon", is_vital=True)
    above_zero(keys, "algorithm.kl_ctrl.target_kl", target)
    above_zero(keys, "algorithm.kl_ctrl.horizon", horizon)
    return KLPart(penalty, beta, "reward", target, horizon)


def _in_loss(keys: Keys) -> KLPart:
    key = f"{_ACTOR}.kl_loss_type"
    name = keys.word(key, field="penalty")
    plain = _SAME.get(name.removesuffix("+"), name.removesuffix("+"))
    penalty = _IN_LOSS.get(plain)
    if penalty is None:
        raise SpecError(f"{keys.given.where}: {key}: verl does not have {name!r}")
    if name.endswith("+"):
        if keys.number_of_release < _PLUS[1]:
            how = "raises" if keys.number_of_release >= _PLUS[0] else "has no such estimator"
            raise SpecError(
                f"{keys.given.where}: {key}: {name}: verl {keys.version} {how} (estimators with a + work from "
                "0.8.0 on)"
            )
        penalty = Penalty.K3PLUS_LOSS if plain == "k3" else Penalty.K2_LOSS  # the gradient is k2's
    beta = keys.price(f"{_ACTOR}.kl_loss_coef")
    if (
        keys.is_given("algorithm.kl_ctrl.type")
        and keys.word("algorithm.kl_ctrl.type") == "adaptive"
    ):
        keys.warnings.append(
            "algorithm.kl_ctrl.type is adaptive, but verl's controller never moves kl_loss_coef: read as fixed"
        )
    return KLPart(penalty, beta, "advantage") if beta > 0 else KLPart()


def _critic(keys: Keys) -> dict[str, Any]:
    return {
        "gamma": keys.number("algorithm.gamma", field="critic.gamma"),
        "gae_lambda": keys.number("algorithm.lam", field="critic.gae_lambda"),
        "learning_rate": keys.number("critic.optim.lr", field="critic.learning_rate"),
        "value_clip": keys.number("critic.cliprange_value", field="critic.value_clip"),
    }


def _aggregation(keys: Keys, algorithm: str) -> dict[str, Any]:
    key = f"{_ACTOR}.loss_agg_mode"
    name = keys.word(key, field="aggregation") or "token-mean"
    if name not in _AGGREGATIONS:
        raise SpecError(
            f"{keys.given.where}: {key}: kltune has no aggregation like {name!r}; it reads {', '.join(_AGGREGATIONS)}"
        )
    if name == "token-sum":
        keys.warnings.append(
            f"{key} token-sum is read as seq-mean-token-sum: the gradient times a constant, beta is the same"
        )
    if name == "seq-mean-token-sum-norm":
        if keys.number_of_release < _BY_SEQUENCES:
            keys.warnings.append(
                f"{key}: before 0.7.1 verl does not divide it by the number of responses: a larger gradient than elsewhere"
            )
        factor = f"{_ACTOR}.loss_scale_factor"
        constant = keys.number(factor)
        if constant != keys.number("data.max_response_length"):
            keys.warnings.append(
                f"{factor} is {constant}; kltune divides by max_new_tokens: the gradient times a constant, beta is the same"
            )
    found = _AGGREGATIONS[name]
    return {} if found == OWN_AGGREGATION[algorithm] else {"aggregation": found}


def _clip(keys: Keys) -> dict[str, Any]:
    low_key, high_key = f"{_ACTOR}.clip_ratio_low", f"{_ACTOR}.clip_ratio_high"
    both = keys.number(f"{_ACTOR}.clip_ratio", field="clip_ratio")
    low = both
    if keys.number(low_key) is not None:
        low = keys.number(low_key, field="clip_ratio")
        given = keys.is_given(f"{_ACTOR}.clip_ratio") and not keys.is_given(low_key)
        if given and low != both:
            keys.warnings.append(
                f"{_ACTOR}.clip_ratio is {both}, but verl uses clip_ratio_low and clip_ratio_high, which are not set in the "
                f"file and {low} by default"
            )
    high = keys.number(high_key, field="clip_ratio_high")
    high = low if high is None else high
    most = keys.number(f"{_ACTOR}.clip_ratio_c", field="clip_ratio_max")
    return {
        "clip_ratio": low,
        "clip_ratio_high": high_clip(low, high),
        "clip_ratio_max": bound(most, high),
    }


def _others(keys: Keys) -> None:
    """What changes the policy and can't be said in kltune."""
    mode = keys.word(f"{_ACTOR}.policy_loss.loss_mode")
    if mode not in ("", "vanilla"):
        keys.warnings.append(f"{_ACTOR}.policy_loss.loss_mode {mode}: read as PPO's clipped loss")
    top_p, top_k = keys.number(f"{_ROLLOUT}.top_p"), keys.number(f"{_ROLLOUT}.top_k")
    if (top_p is not None and top_p < 1) or (top_k is not None and top_k > 0):
        keys.warnings.append(
            f"{_ROLLOUT}.top_p or top_k cuts the distribution that completions are drawn from; the KL is of the whole one"
        )
    scheduler = f"{_ACTOR}.optim.lr_scheduler_type"
    if keys.is_given(scheduler) and keys.word(scheduler) != "constant":
        keys.warnings.append(f"{scheduler}: kltune's learning rate is constant")
