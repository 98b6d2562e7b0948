"""The keys of TRL's GRPOConfig or RLOOConfig in, what they set in kltune's words out: the way back of kltune/export/trl.py.

Read in TRL 1.16.0 and the tags on record in kltune/export/keys: ``trainer/grpo_trainer.py``, ``trainer/rloo_trainer.py``.
"""

from __future__ import annotations

from typing import Any, Final

from kltune.adopt.given import Given
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

_INVERTED: Final = ((0, 22, 0), (0, 22, 1))
"""Releases whose scale_rewards "group" divides by nothing and "none" divides."""

_AGGREGATIONS: Final = {
    "dapo": "token-mean",
    "bnpo": "token-mean",
    "cispo": "token-mean",
    "vespo": "token-mean",
    "grpo": "seq-mean-token-mean",
    "sapo": "seq-mean-token-mean",
    "dr_grpo": "constant",
    "luspo": "seq-mean-token-sum",
}
_OTHER_LOSSES: Final = ("cispo", "vespo", "sapo")
_OF_RLOO: Final = ("normalize_advantages", "reward_clip_range")
_OF_GRPO: Final = (
    "loss_type",
    "scale_rewards",
    "use_bias_correction_kl",
    "importance_sampling_level",
    "delta",
)


def builder_of(given: Given) -> str:
    """Which of TRL's classes a file is for: as it says, else by keys that one of them alone has."""
    if given.builder:
        return given.builder
    names = {*given.values, *given.unreadable}
    is_rloo = names & {*_OF_RLOO} and not names & {*_OF_GRPO}
    return "RLOOConfig" if is_rloo else "GRPOConfig"


def read_trl(keys: Keys, builder: str) -> Reading:
    """Read it.

    Raises:
        SpecError: a setting that kltune has no words for; the message names the key.
    """
    if not keys.given.builder:
        keys.warnings.append(f"the file does not say whose keys they are: read as {builder}'s")
    is_rloo = builder == "RLOOConfig"
    if is_rloo and not keys.is_listed("beta"):
        raise SpecError(
            f"{keys.given.where}: RLOO of TRL {keys.version} is another trainer (kl_coef, rloo_k), which kltune "
            "does not read; it reads 0.22.2 and newer"
        )
    kl, own = _rloo(keys) if is_rloo else _grpo(keys)
    rows, group, per_update = _sizes(keys)
    trainer: dict[str, Any] = {
        **own,
        "minibatches": minibatches(
            keys,
            rows,
            per_update,
            (
                "generation_batch_size",
                "per_device_train_batch_size x gradient_accumulation_steps",
            ),
        ),
        "epochs": keys.whole("num_iterations", field="epochs"),
        "max_new_tokens": keys.whole("max_completion_length", field="max_new_tokens"),
        "temperature": keys.number("temperature", field="temperature"),
        "learning_rate": keys.number("learning_rate", field="learning_rate"),
        "weight_decay": keys.number("weight_decay", field="weight_decay"),
        "max_grad_norm": keys.number("max_grad_norm", field="max_grad_norm"),
        **_clip(keys),
    }
    reference = _reference(keys, trainer)
    if reference and kl.penalty is not None:
        trainer["reference"] = reference
    _others(keys)
    steps = keys.whole("max_steps", field="steps")
    updates = trainer["minibatches"] * (trainer["epochs"] or 1)
    sizes = {
        "prompts": rows // group,
        "group": group,
        "steps": steps // updates if steps is not None and steps >= updates else None,
        "lora_rank": None,
    }
    return reading(keys, kl, trainer, sizes, base="the configuration's model")


def _grpo(keys: Keys) -> tuple[KLPart, dict[str, Any]]:
    if keys.number_of_release[:3] in _INVERTED:
        raise SpecError(
            f"{keys.given.where}: scale_rewards is inverted in TRL {keys.version}; say which division you want by "
            "--from-version 0.22.2"
        )
    algorithm = _algorithm(keys)
    loss = keys.word("loss_type", field="aggregation")
    if loss not in _AGGREGATIONS:
        raise SpecError(
            f"{keys.given.where}: loss_type: kltune knows {', '.join(_AGGREGATIONS)} (got {loss!r})"
        )
    if loss in _OTHER_LOSSES:
        keys.warnings.append(
            f"loss_type {loss}: its policy loss is not PPO's clipped one, which is put in its place; its KL is the same"
        )
    found = _AGGREGATIONS[loss]
    own: dict[str, Any] = {"algorithm": algorithm}
    if found != OWN_AGGREGATION[algorithm]:
        own["aggregation"] = found
    if keys.word("importance_sampling_level") not in ("", "token"):
        keys.warnings.append(
            "importance_sampling_level sequence: TRL's ratio is then the geometric mean over the completion, also of the "
            "KL; kltune's is per token: the same only with one update per rollout"
        )
    delta, high = keys.number("delta", field="clip_ratio_max"), keys.number("epsilon_high")
    own["clip_ratio_max"] = bound(delta, high if high is not None else keys.number("epsilon"))
    own["entropy_bonus"] = keys.number("entropy_coef", field="entropy_bonus")
    return _in_loss(keys), own


def _algorithm(keys: Keys) -> str:
    scale = keys.value("scale_rewards", field="algorithm", is_vital=True)
    words = str(scale).lower()
    if words == "batch":
        keys.warnings.append(
            "scale_rewards batch: TRL divides by the standard deviation over the whole batch, kltune's GRPO by the "
            "group's; give that one as --sigma where a raw price is asked for"
        )
    if words in ("true", "group", "batch"):
        return "grpo"
    if words in ("false", "none"):
        return "dr-grpo"
    raise SpecError(
        f"{keys.given.where}: scale_rewards must be group, batch or none (got {scale!r})"
    )


def _in_loss(keys: Keys) -> KLPart:
    beta = keys.price("beta")
    if beta <= 0:
        return KLPart()
    name = "use_bias_correction_kl"
    is_reverse = (keys.is_listed(name) or keys.is_given(name)) and keys.switch(
        name, field="penalty"
    )
    if keys.is_given(name) and not keys.is_listed(name):
        keys.warnings.append(f"{name}: TRL {keys.version} has no such key")
    return KLPart(Penalty.WK3_LOSS if is_reverse else Penalty.K3_LOSS, beta, "advantage")


def _rloo(keys: Keys) -> tuple[KLPart, dict[str, Any]]:
    if keys.switch("normalize_advantages"):
        keys.warnings.append(
            "normalize_advantages: TRL divides the advantages after the KL was paid, which keeps beta's price; kltune's "
            "RLOO divides by nothing, so its steps are of another size"
        )
    beta = keys.price("beta")
    kl = KLPart(Penalty.K1_REWARD, beta, "reward") if beta > 0 else KLPart()
    own: dict[str, Any] = {"algorithm": "rloo", "importance": "sequence"}
    clip = keys.value("reward_clip_range")
    if clip is not None:
        low, high = (float(one) for one in clip)
        if low == -high:
            own["reward"] = {"clip": high}
        else:
            keys.warnings.append(
                f"reward_clip_range {clip}: kltune clips to equal bounds only: left out"
            )
    return kl, own


def _sizes(keys: Keys) -> tuple[int, int, int]:
    """Completions per step and per prompt, and per update."""
    name = "per_device_train_batch_size"
    device = keys.size(name, "prompts")
    per_update = device * (
        keys.whole("gradient_accumulation_steps", field="prompts.accumulation") or 1
    )
    group = keys.size("num_generations", "group_size")
    rows = keys.whole("generation_batch_size", field="prompts.rows")
    several = keys.whole("steps_per_generation", field="prompts.several")
    if rows is None:
        rows = device * several if several is not None else per_update
    if not {"prompts", "group_size"}.isdisjoint(name.partition(".")[0] for name in keys.unclear):
        rows = max(1, rows // group) * group  # a stand-in
    if rows % group:
        raise SpecError(
            f"{keys.given.where}: {rows} completions per step (on one device) are no multiple of num_generations "
            f"({group}): write the sizes of all devices into {name}"
        )
    keys.sources["minibatches"] = f"{name} x gradient_accumulation_steps"
    keys.warnings.append(
        f"{name}: one device is assumed, so {per_update} completions per update; on more of them, --batch says how many a step has"
    )
    return rows, group, per_update


def _clip(keys: Keys) -> dict[str, Any]:
    low = keys.number("epsilon", field="clip_ratio")
    high = keys.number("epsilon_high", field="clip_ratio_high")
    return {"clip_ratio": low, "clip_ratio_high": high_clip(low, high)}


def _reference(keys: Keys, trainer: dict[str, Any]) -> dict[str, Any]:
    if not keys.switch("sync_ref_model"):
        return {}
    updates = trainer["minibatches"] * (trainer["epochs"] or 1)
    every = keys.whole("ref_model_sync_steps", field="reference.every") or updates
    if every % updates:
        keys.warnings.append(
            f"ref_model_sync_steps {every} is no multiple of the {updates} updates per rollout: rounded"
        )
    return {
        "every": max(1, round(every / updates)),
        "mixture": keys.number("ref_model_mixup_alpha", field="reference.mixture"),
    }


def _others(keys: Keys) -> None:
    """What changes the policy and can't be said in kltune."""
    top_p, top_k = keys.number("top_p"), keys.number("top_k")
    if (top_p is not None and top_p < 1) or (top_k is not None and top_k > 0):
        keys.warnings.append(
            "top_p or top_k (in old releases 50 by default) cuts the distribution that completions are drawn from; the "
            "KL is of the whole one"
        )
    scheduler = keys.word("lr_scheduler_type")
    if scheduler.removeprefix("SchedulerType.").lower() != "constant":
        keys.warnings.append(f"lr_scheduler_type {scheduler}: kltune's learning rate is constant")
