"""OpenRLHF's flags, by old or new names, in; what they set in kltune's words out: the way back of kltune/export/openrlhf.py.

Read in OpenRLHF's tags on record in kltune/export/keys: ``trainer/ppo_utils/experience_maker.py`` (baseline and
division first, then the KL), ``trainer/ray/ppo_actor.py`` (KL in the loss), ``models/utils.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
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
from kltune.export.openrlhf_flags import OLD_NAMES
from kltune.spec.algorithm import OWN_AGGREGATION
from kltune.spec.penalty import Penalty

_OLD: Final[Mapping[str, str]] = MappingProxyType(
    {
        **OLD_NAMES,
        "--algo.advantage.no_std_norm": "--no_advantage_std_norm",
        "--actor.policy_loss_type": "--policy_loss_type",
        "--actor.model_name_or_path": "--pretrain",
        "--ds.lora.rank": "--lora_rank",
        "--rollout.top_p": "--top_p",
        "--data.max_len": "--max_len",
        "--reward.clip_range": "--reward_clip_range",
    }
)

_ALGORITHMS: Final = {
    "gae": "ppo",
    "reinforce": "reinforce",
    "rloo": "rloo",
    "group_norm": "grpo",
    "dr_grpo": "dr-grpo",
}
_IN_REWARD: Final = {"k1": Penalty.K1_REWARD, "k2": Penalty.K2_REWARD, "k3": Penalty.K3_REWARD}
_IN_LOSS: Final = {"k1": Penalty.K1_LOSS, "k2": Penalty.K2_LOSS, "k3": Penalty.K3_LOSS}
_AFTER_BASELINE: Final = ("grpo", "dr-grpo")
"""Algorithms whose KL in the reward stands beside the advantages as they were made by then."""


def read_openrlhf(keys: Keys) -> Reading:
    """Read it.

    Raises:
        SpecError: a setting that kltune has no words for; the message names the flag.
    """
    algorithm = _algorithm(keys)
    kl = _kl(keys, algorithm)
    prompts_name, group_name = (
        _name(keys, "--rollout.batch_size"),
        _name(keys, "--rollout.n_samples_per_prompt"),
    )
    prompts = keys.size(prompts_name, "prompts")
    group = keys.size(group_name, "group_size")
    part_name = _name(keys, "--train.batch_size")
    part = keys.whole(part_name, field="minibatches") or prompts * group
    trainer: dict[str, Any] = {
        "algorithm": algorithm,
        "minibatches": minibatches(
            keys, prompts * group, part, (f"{prompts_name} x {group_name}", part_name)
        ),
        "epochs": keys.whole(_name(keys, "--train.max_epochs"), field="epochs"),
        "max_new_tokens": _longest(keys),
        "temperature": keys.number(_name(keys, "--rollout.temperature"), field="temperature"),
        "learning_rate": _rate(keys, "actor", "learning_rate"),
        "weight_decay": keys.number(_name(keys, "--actor.adam.weight_decay"), field="weight_decay"),
        "max_grad_norm": keys.number(_name(keys, "--actor.max_norm"), field="max_grad_norm"),
        "entropy_bonus": keys.number(_name(keys, "--actor.entropy_coef"), field="entropy_bonus"),
        "critic": _critic(keys) if algorithm == "ppo" else None,
        **_clip(keys),
    }
    if OWN_AGGREGATION[algorithm] != "token-mean":
        trainer["aggregation"] = "token-mean"
    if kl.penalty is not None and kl.penalty.in_reward and algorithm != "ppo":
        trainer["kl"] = {"credit": "reward-to-go"}  # its returns are summed from the token on
    _others(keys)
    rank = keys.whole(_name(keys, "--ds.lora.rank"))
    sizes = {"prompts": prompts, "group": group, "steps": None, "lora_rank": rank or None}
    base = keys.loose(_name(keys, "--actor.model_name_or_path")) or "the configuration's model"
    return reading(keys, kl, trainer, sizes, base=base)


def _name(keys: Keys, flag: str) -> str:
    """The name under which the file has it, else under which the release does."""
    old = _OLD.get(flag, flag)
    for name in (flag, old):
        if keys.is_given(name):
            return name
    return flag if keys.is_listed(flag) else old


def _algorithm(keys: Keys) -> str:
    flag = _name(keys, "--algo.advantage.estimator")
    name = keys.word(flag, field="algorithm")
    if name not in _ALGORITHMS:
        near = ": it takes the group's mean off and then whitens over the batch; the nearest are group_norm and reinforce"
        raise SpecError(
            f"{keys.given.where}: {flag}: kltune has no algorithm like {name!r}"
            f"{near if name == 'reinforce_baseline' else ''}; it reads {', '.join(_ALGORITHMS)}"
        )
    return _ALGORITHMS[name]


def _kl(keys: Keys, algorithm: str) -> KLPart:
    beta = keys.price(_name(keys, "--algo.kl.init_coef"))
    if beta <= 0:
        return KLPart()
    flag = _name(keys, "--algo.kl.estimator")
    name = keys.word(flag, field="penalty") or "k1"
    in_loss = keys.switch(_name(keys, "--algo.kl.use_loss"))
    penalties = _IN_LOSS if in_loss else _IN_REWARD
    if name not in penalties:
        raise SpecError(f"{keys.given.where}: {flag}: OpenRLHF has k1, k2 and k3 (got {name!r})")
    # In the reward the KL is taken off after the baseline and the division by the group's deviation.
    unit = "advantage" if in_loss or algorithm in _AFTER_BASELINE else "reward"
    target_flag = _name(keys, "--algo.kl.target")
    target = keys.number(target_flag, field="target_kl", is_vital=True)
    if target is None:
        return KLPart(penalties[name], beta, unit)
    above_zero(keys, target_flag, target)
    horizon_flag = _name(keys, "--algo.kl.horizon")
    horizon = keys.number(horizon_flag, field="horizon", is_vital=True)
    above_zero(keys, horizon_flag, horizon)
    return KLPart(penalties[name], beta, unit, target, horizon)


def _critic(keys: Keys) -> dict[str, Any]:
    no_whitening = keys.switch(_name(keys, "--algo.advantage.no_std_norm"))
    return {
        "gamma": keys.number(_name(keys, "--algo.advantage.gamma"), field="critic.gamma"),
        "gae_lambda": keys.number(_name(keys, "--algo.advantage.lambd"), field="critic.gae_lambda"),
        "learning_rate": _rate(keys, "critic", "critic.learning_rate"),
        "value_clip": keys.number(_name(keys, "--critic.value_clip"), field="critic.value_clip"),
        "whiten": not no_whitening,
    }


def _rate(keys: Keys, who: str, field: str) -> float | None:
    """A learning rate; its default is an expression that names one for either model."""
    flag = _name(keys, f"--{who}.adam.lr")
    found = keys.value(flag, field=field)
    both = re.fullmatch(r"(\S+) if prefix == 'actor' else (\S+)", str(found))
    if both is not None:
        return float(both[1 if who == "actor" else 2])
    return keys.number(flag, field=field)


def _longest(keys: Keys) -> int | None:
    """Tokens of a completion at most."""
    flag = _name(keys, "--rollout.max_new_tokens")
    if flag == "--max_new_tokens" and not keys.is_given(flag):
        flag = "--max_new_tokens" if keys.is_listed(flag) else "--generate_max_len"
    if keys.is_given("--generate_max_len"):
        flag = "--generate_max_len"
    found = keys.whole(flag, field="max_new_tokens")
    if found is not None:
        return found
    whole = _name(keys, "--data.max_len")
    found = keys.whole(whole, field="max_new_tokens")
    if found is None:
        raise SpecError(
            f"{keys.given.where}: {flag} is needed: how long a completion may be is not said"
        )
    keys.warnings.append(
        f"{flag} is not set, so {whole} ({found} tokens, prompt included) is taken as the limit of a completion"
    )
    return found


def _clip(keys: Keys) -> dict[str, Any]:
    low = keys.number(_name(keys, "--actor.eps_clip"), field="clip_ratio")
    high = low
    name = _name(keys, "--actor.eps_clip_low_high")
    both = keys.value(name, field="clip_ratio_high")
    if both is not None:
        if not isinstance(both, list | tuple) or len(both) != 2:
            raise SpecError(f"{keys.given.where}: {name} must be two numbers (got {both!r})")
        low, high = float(both[0]), float(both[1])
        keys.sources["clip_ratio"] = name
    most = keys.number(_name(keys, "--actor.dual_clip"), field="clip_ratio_max")
    return {
        "clip_ratio": low,
        "clip_ratio_high": high_clip(low, high),
        "clip_ratio_max": bound(most, high),
    }


def _others(keys: Keys) -> None:
    """What changes the policy and can't be said in kltune."""
    loss = keys.word(_name(keys, "--actor.policy_loss_type"))
    if loss not in ("", "ppo"):
        keys.warnings.append(
            f"policy_loss_type {loss}: its ratio is of the whole completion; read as PPO's clipped loss per token"
        )
    top_p = keys.number(_name(keys, "--rollout.top_p"))
    if top_p is not None and top_p < 1:
        keys.warnings.append(
            "top_p cuts the distribution that completions are drawn from; the KL is of the whole one"
        )
    schedule = keys.word(_name(keys, "--actor.lr_scheduler"))
    if schedule not in ("", "constant"):
        keys.warnings.append(f"lr_scheduler {schedule}: kltune's learning rate is constant")
