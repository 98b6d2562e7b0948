"""A setting and a target in; a Python file that builds TRL's GRPOConfig or RLOOConfig out.

Read in TRL 1.16.0 and the tags on record in kltune/export/keys: ``trainer/grpo_trainer.py``
(advantages, loss by loss_type, KL), ``trainer/rloo_trainer.py`` (k1 summed, raw reward).
"""

from __future__ import annotations

from typing import Final, NoReturn

from kltune.errors import SpecError
from kltune.export import convert
from kltune.export.cautions import (
    cautions,
    heading,
    last_step_words,
    no_kl_words,
    updates_per_rollout,
)
from kltune.export.convert import Gradient, Held
from kltune.export.key import Exported, Key, check_known
from kltune.export.render import python_text
from kltune.export.setting import Winner
from kltune.export.target import Target
from kltune.export.texts import text_keys, text_warnings
from kltune.export.trl_loss import WORDED, loss_type

_INVERTED: Final = ((0, 22, 0), (0, 22, 1))
"""Releases whose scale_rewards "group" divides by nothing and "none" divides."""


def export_trl(winner: Winner, target: Target) -> Exported:
    """Build the file.

    Raises:
        SpecError: TRL can't run the setting; the message names the nearest thing that works.
    """
    builder = _builder(winner, target)
    warnings = cautions(winner, target)
    beta = convert.held(
        winner, framework="TRL", why_not="TRL has no controller that moves beta within a run"
    )
    warnings += beta.warnings
    if builder == "RLOOConfig":
        keys = _rloo(winner, target, beta, warnings)
    else:
        keys = _grpo(winner, target, beta, warnings)
    keys += _shared(winner, target, builder, warnings)
    keys += text_keys(winner, target, builder)
    warnings += text_warnings(winner, keys)
    check_known(tuple(keys), target.keys, f"{builder}.")
    found = Exported("trl", target.version, tuple(keys), tuple(warnings), builder=builder)
    return found.with_text(python_text(found, heading(winner, target)))


def _builder(winner: Winner, target: Target) -> str:
    """Which of TRL's trainers runs the setting."""
    algorithm, kind = winner.trainer.algorithm, convert.gradient(winner)
    if algorithm == "ppo":
        _refuse(
            "TRL has had no PPO since 1.13.0, and kltune does not write the older ones",
            "take --to verl or --to openrlhf, or a study with algorithm grpo or rloo",
        )
    if algorithm == "reinforce":
        _refuse(
            "no TRL trainer whitens raw returns over the whole batch (REINFORCE++)",
            "take --to verl or --to openrlhf (estimator reinforce), or a study with algorithm grpo or rloo",
        )
    if kind is Gradient.OTHER:
        _refuse(
            f"{winner.setting.penalty} has the gradient {_nature(winner)}, which TRL can't be set to",
            "take a trial with k2-loss, wk3-loss or k3-loss",
        )
    if kind is Gradient.FULL and algorithm == "grpo":
        _refuse(
            f"{winner.setting.penalty} pays the KL in the reward, before the group's normalisation; TRL's GRPO "
            "knows a KL in the loss only, which has another gradient",
            "take --to verl (use_kl_in_reward), or a trial with k2-loss or wk3-loss",
        )
    is_rloo = kind is Gradient.FULL or (kind is Gradient.NONE and algorithm == "rloo")
    if is_rloo and "RLOOConfig.beta" not in target.keys:
        _refuse(
            f"RLOO of TRL {target.version} is another trainer (kl_coef, rloo_k), which kltune does not write",
            "use --version 0.22.2 or newer",
        )
    if not is_rloo and target.number[:3] in _INVERTED:
        _refuse(f"scale_rewards is inverted in TRL {target.version}", "use --version 0.22.2")
    return "RLOOConfig" if is_rloo else "GRPOConfig"


def _rloo(winner: Winner, target: Target, beta: Held, warnings: list[str]) -> list[Key]:
    trainer = winner.trainer
    price = convert.price(winner, target, beta.beta)
    if trainer.loss_aggregation == "seq-mean-token-mean":
        warnings.append(
            "aggregation: the study weighed each completion by 1 / its length; TRL's RLOO sums over its tokens"
        )
    elif (trainer.algorithm, trainer.loss_aggregation) != ("rloo", "seq-mean-token-sum"):
        warnings.append(
            "TRL's RLOO has the study's gradient times a constant (leave-one-out mean, sum over tokens); AdamW does "
            "not see it, but max_grad_norm does"
        )
    if trainer.importance == "token" and updates_per_rollout(winner) > 1:
        warnings.append(
            "importance ratio and clip: per token in the study, of the whole completion in TRL's RLOO"
        )
    if trainer.credit == "reward-to-go" and beta.beta:
        warnings.append(
            "kl.credit: TRL pays the whole completion's KL at every token: the same expected gradient"
        )
    return [
        Key("beta", price.value, f"{price.words}; {beta.words}; k1, summed over the completion"),
        Key(
            "normalize_advantages",
            False,
            "reward minus the mean of the group's others, divided by nothing",
        ),
    ]


def _grpo(winner: Winner, target: Target, beta: Held, warnings: list[str]) -> list[Key]:
    trainer, kind = winner.trainer, convert.gradient(winner)
    is_divided = trainer.algorithm == "grpo"
    if kind is Gradient.NONE:
        keys = [Key("beta", 0.0, no_kl_words(winner))]
    else:
        found = convert.coefficient(winner, target, beta.beta, keeps_own=not is_divided)
        keys = [Key("beta", found.value, f"{found.words}; {beta.words}")]
        keys += _correction(winner, target, kind)
    if trainer.algorithm == "rloo":
        warnings.append(
            f"TRL has no RLOO with a KL in the loss: GRPO with the group's mean is used, whose gradient is (G - 1) / G "
            f"of it, G = {target.group}"
        )
    group, none = ("group", "none") if target.number >= WORDED else (True, False)
    why = (
        "divided by the group's standard deviation, as in the study"
        if is_divided
        else "divided by nothing"
    )
    keys += [
        Key(
            "scale_rewards", group if is_divided else none, f"reward minus the group's mean, {why}"
        ),
        loss_type(trainer, target, warnings),
    ]
    if "GRPOConfig.importance_sampling_level" in target.keys:
        keys.append(Key("importance_sampling_level", "token", "ratio and clip per token"))
    if trainer.importance == "sequence" and updates_per_rollout(winner) > 1:
        warnings.append(
            "importance: the study's ratio was of the whole completion (a product); TRL's GRPO has it per token"
        )
    if trainer.clip_ratio_max is not None:
        keys.append(Key("delta", trainer.clip_ratio_max, "trainer.clip_ratio_max"))
    if trainer.entropy_bonus:
        keys.append(Key("entropy_coef", trainer.entropy_bonus, "trainer.entropy_bonus"))
    return keys


def _correction(winner: Winner, target: Target, kind: Gradient) -> list[Key]:
    """The default is True from 1.10.0 on and False from 0.26.0 to 1.9.0, so it is always written."""
    name = "use_bias_correction_kl"
    if f"GRPOConfig.{name}" in target.keys:
        is_reverse = kind is Gradient.LOCAL
        words = (
            "k3 with the importance ratio inside: reverse-KL gradient"
            if is_reverse
            else "plain k3: forward-KL gradient"
        )
        return [
            Key(
                name,
                is_reverse,
                f"{words}, as {winner.setting.penalty}; its default changed in 1.10.0",
            )
        ]
    if kind is Gradient.LOCAL:
        _refuse(
            f"{winner.setting.penalty} has a reverse-KL gradient; TRL {target.version} has the forward one only "
            "(plain k3)",
            "use --version 0.26.0 or newer (use_bias_correction_kl), or a trial with k3-loss",
        )
    return []


def _shared(winner: Winner, target: Target, builder: str, warnings: list[str]) -> list[Key]:
    trainer, rows = winner.trainer, target.batch
    if rows % trainer.minibatches:
        raise SpecError(
            f"--batch: {rows} completions can't be cut into {trainer.minibatches} equal minibatches"
        )
    per_update = rows // trainer.minibatches
    keys = [
        Key("num_generations", target.group, f"completions per prompt ({target.whose('group')})"),
        Key(
            "per_device_train_batch_size",
            per_update,
            "completions per update on one device: processes x this x gradient_accumulation_steps must be it",
        ),
    ]
    if f"{builder}.generation_batch_size" in target.keys:
        keys.append(
            Key("generation_batch_size", rows, f"completions per step ({target.whose('batch')})")
        )
    elif trainer.minibatches > 1:
        _refuse(
            f"TRL {target.version} can't make several updates of one rollout by parts",
            "use --version 0.18.2 or newer",
        )
    keys += [
        Key("num_iterations", trainer.epochs, "trainer.epochs"),
        Key("epsilon", trainer.clip_ratio, "trainer.clip_ratio"),
    ]
    if trainer.clip_ratio_high is not None:
        keys.append(Key("epsilon_high", trainer.clip_ratio_high, "trainer.clip_ratio_high"))
    keys += [
        Key(
            "temperature", trainer.temperature, "of sampling, policy and reference log-probs alike"
        ),
        Key(
            "max_completion_length",
            target.max_new_tokens,
            f"tokens ({target.whose('max_new_tokens')})",
        ),
    ]
    if target.keys.defaults.get(f"{builder}.top_k") == 50:
        keys.append(
            Key("top_k", None, "its default of 50 would cut the distribution that the KL is of")
        )
    if f"{builder}.disable_dropout" in target.keys:
        keys.append(
            Key("disable_dropout", True, "dropout would make policy and reference differ at step 0")
        )
    keys += _reference(winner, warnings)
    return [*keys, *_optimiser(winner, target)]


def _reference(winner: Winner, warnings: list[str]) -> list[Key]:
    reference = winner.trainer.reference
    if reference.every is None or winner.setting.beta == 0:
        return []
    if winner.source.lora_rank is not None:
        warnings.append(
            "reference.every: the study's reference follows the adapter; TRL mixes whole models, not with PEFT"
        )
    every = reference.every * updates_per_rollout(winner)
    return [
        Key("sync_ref_model", True, "trainer.reference.every"),
        Key("ref_model_sync_steps", every, f"{reference.every} steps in optimiser updates"),
        Key(
            "ref_model_mixup_alpha",
            reference.mixture,
            "trainer.reference.mixture: the policy's share",
        ),
    ]


def _optimiser(winner: Winner, target: Target) -> list[Key]:
    trainer, rate = winner.trainer, winner.setting.learning_rate
    is_set = target.is_studied or bool(winner.source.read_from)
    rank = winner.source.lora_rank
    what = "all weights" if rank is None else f"LoRA of rank {rank}"
    keys = [
        Key("learning_rate", rate, f"the study's, for {what} on {winner.source.base}", is_set),
        Key("lr_scheduler_type", "constant", "as in the study"),
        Key("weight_decay", trainer.weight_decay, "trainer.weight_decay"),
        Key("max_grad_norm", trainer.max_grad_norm, "trainer.max_grad_norm"),
    ]
    if winner.stop is not None:
        updates = winner.stop.last_step * updates_per_rollout(winner)
        words = last_step_words(winner.stop)
        keys.append(Key("max_steps", updates, f"{words}, in optimiser updates", is_set))
    return keys


def _nature(winner: Winner) -> str:
    penalty = winner.setting.penalty
    return "" if penalty is None else f'"{penalty.nature.gradient}"'


def _refuse(why: str, nearest: str) -> NoReturn:
    raise SpecError(f"--to trl: {why}; {nearest}")
