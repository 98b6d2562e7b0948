"""NeMo-RL's GRPO keys in, what they set in kltune's words out: the way back of kltune/export/nemo_rl.py.

Read in NeMo-RL's tags on record in kltune/export/keys: ``algorithms/loss/loss_functions.py``, ``algorithms/utils.py``,
``algorithms/advantage_estimator.py``.
"""

from __future__ import annotations

from typing import Any, Final

from kltune.adopt.keys import Keys
from kltune.adopt.reading import (
    KLPart,
    Reading,
    bound,
    high_clip,
    minibatches,
    reading,
)
from kltune.errors import SpecError
from kltune.spec.algorithm import OWN_AGGREGATION
from kltune.spec.penalty import Penalty

_WEIGHTED: Final = (0, 7, 0)
"""First release whose KL in the loss carries a differentiable weight."""

_TYPE: Final = "loss_fn.reference_policy_kl_type"
_PLAIN: Final = {"k1": Penalty.K1_LOSS, "k2": Penalty.K2_LOSS, "k3": Penalty.K3_LOSS}
_WITH_WEIGHT: Final = {"k1": Penalty.WK1_LOSS, "k3": Penalty.WK3_LOSS}


def read_nemo_rl(keys: Keys) -> Reading:
    """Read it.

    Raises:
        SpecError: a setting that kltune has no words for; the message names the key.
    """
    algorithm = _algorithm(keys)
    kl = _kl(keys, algorithm)
    group_name, prompts_name = "grpo.num_generations_per_prompt", "grpo.num_prompts_per_step"
    prompts = keys.size(prompts_name, "prompts")
    group = keys.size(group_name, "group_size")
    part_name = "policy.train_global_batch_size"
    part = keys.whole(part_name, field="minibatches") or prompts * group
    trainer: dict[str, Any] = {
        "algorithm": algorithm,
        "minibatches": minibatches(
            keys, prompts * group, part, (f"{prompts_name} x {group_name}", part_name)
        ),
        "max_new_tokens": keys.whole("policy.generation.max_new_tokens", field="max_new_tokens"),
        "temperature": keys.number("policy.generation.temperature", field="temperature"),
        "learning_rate": keys.number("policy.optimizer.kwargs.lr", field="learning_rate"),
        "weight_decay": keys.number("policy.optimizer.kwargs.weight_decay", field="weight_decay"),
        "max_grad_norm": keys.number("policy.max_grad_norm", field="max_grad_norm"),
        **_loss(keys, algorithm),
    }
    clip = keys.number("loss_fn.kl_output_clamp_value", field="kl.clip")
    if clip is not None and kl.penalty is not None:
        trainer["kl"] = {"clip": clip}
    is_lora = keys.switch("policy.dtensor_cfg.lora_cfg.enabled")
    rank = keys.whole("policy.dtensor_cfg.lora_cfg.dim")
    steps = keys.whole("grpo.max_num_steps", field="steps")
    sizes = {
        "prompts": prompts,
        "group": group,
        "steps": steps if keys.is_given("grpo.max_num_steps") else None,
        "lora_rank": rank if is_lora else None,
    }
    _others(keys)
    base = keys.loose("policy.model_name") or "the configuration's model"
    return reading(keys, kl, trainer, sizes, base=base)


def _algorithm(keys: Keys) -> str:
    estimator = keys.word("grpo.adv_estimator.name", field="algorithm") or "grpo"
    if estimator == "reinforce_plus_plus":
        if keys.switch("grpo.adv_estimator.minus_baseline"):
            raise SpecError(
                f"{keys.given.where}: grpo.adv_estimator.minus_baseline: kltune has no REINFORCE++ that takes the group's "
                "mean off first; the nearest is minus_baseline: false"
            )
        return "reinforce"
    if estimator != "grpo":
        raise SpecError(
            f"{keys.given.where}: grpo.adv_estimator.name: kltune reads grpo and reinforce_plus_plus (got {estimator!r})"
        )
    leaves_out = keys.switch(_of_estimator(keys, "use_leave_one_out_baseline"))
    if keys.switch(_of_estimator(keys, "normalize_rewards"), field="algorithm"):
        if leaves_out:
            keys.warnings.append(
                "grpo.use_leave_one_out_baseline with normalize_rewards: mean and standard deviation are of the group's "
                "others; kltune's GRPO takes the whole group's: advantages are larger there by about G / (G - 1), and the "
                "KL counts less by that"
            )
        return "grpo"
    return "rloo" if leaves_out else "dr-grpo"


def _of_estimator(keys: Keys, name: str) -> str:
    """The estimator's own key counts where the release has one; it refers to the other unless it is set."""
    for key in (f"grpo.adv_estimator.{name}", f"grpo.{name}"):
        if keys.is_given(key) or keys.is_listed(key):
            keys.value(f"grpo.{name}")  # referred to
            return key
    return f"grpo.{name}"


def _kl(keys: Keys, algorithm: str) -> KLPart:
    name = "loss_fn.reference_policy_kl_penalty"
    beta = keys.price(name)
    in_reward = keys.switch("loss_fn.use_kl_in_reward")
    if in_reward and algorithm == "reinforce":
        raise SpecError(
            f"{keys.given.where}: loss_fn.use_kl_in_reward: NeMo-RL's REINFORCE++ pays a token's KL at that token only "
            "(no reward-to-go), which kltune has no penalty for; switch it off for the KL in the loss"
        )
    if in_reward:
        keys.warnings.append(
            f"loss_fn.use_kl_in_reward: NeMo-RL's GRPO ignores it and switches the KL of the loss off with it: there is no KL, "
            f"whatever {name} says: read as beta = 0"
        )
        return KLPart()
    if beta <= 0:
        return KLPart()
    is_weighted = keys.number_of_release >= _WEIGHTED
    kind = "k3"
    if keys.is_listed(_TYPE) or keys.is_given(_TYPE):
        kind = keys.word(_TYPE, field="penalty") or "k3"
    known = _WITH_WEIGHT if is_weighted else _PLAIN
    if kind in known:
        return KLPart(known[kind], beta, "advantage")
    if kind == "k2" and is_weighted:
        raise SpecError(
            f"{keys.given.where}: {_TYPE} k2: from 0.7.0 on its gradient is that of no KL (the weight is differentiated with "
            "it), and kltune has no penalty like it; k3 is the reverse KL there. Written for an older release: --from-version 0.6.0"
        )
    raise SpecError(f"{keys.given.where}: {_TYPE}: NeMo-RL has k1, k2 and k3 (got {kind!r})")


def _loss(keys: Keys, algorithm: str) -> dict[str, Any]:
    is_token_mean = keys.switch("loss_fn.token_level_loss", field="aggregation")
    aggregation = "token-mean" if is_token_mean else "seq-mean-token-mean"
    low = keys.number("loss_fn.ratio_clip_min", field="clip_ratio")
    high = keys.number("loss_fn.ratio_clip_max", field="clip_ratio_high")
    most = keys.number("loss_fn.ratio_clip_c", field="clip_ratio_max")
    found: dict[str, Any] = {
        "clip_ratio": low,
        "clip_ratio_high": high_clip(low, high),
        "clip_ratio_max": bound(most, high),
    }
    if aggregation != OWN_AGGREGATION[algorithm]:
        found["aggregation"] = aggregation
    return found


def _others(keys: Keys) -> None:
    """What changes the policy and can't be said in kltune."""
    for name in (
        "loss_fn.disable_ppo_ratio",
        "loss_fn.sequence_level_importance_ratios",
        "loss_fn.use_cispo",
    ):
        if keys.is_listed(name) and keys.switch(name):
            keys.warnings.append(f"{name}: read as PPO's clipped loss per token")
    keys.switch("loss_fn.use_on_policy_kl_approximation")  # follows from the number of updates
    keys.number("loss_fn.kl_input_clamp_value")
    top_p, top_k = keys.number("policy.generation.top_p"), keys.number("policy.generation.top_k")
    if (top_p is not None and top_p < 1) or (top_k is not None and top_k > 0):
        keys.warnings.append(
            "policy.generation.top_p or top_k cuts the distribution that completions are drawn from; the KL is of the whole one"
        )
    if keys.is_given("policy.scheduler"):
        keys.value("policy.scheduler")
        keys.warnings.append("policy.scheduler: kltune's learning rate is constant")
