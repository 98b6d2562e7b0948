"""A setting and a target in; overrides of a NeMo-RL GRPO configuration out, as YAML.

Read in NeMo-RL's tags on record in kltune/export/keys: ``algorithms/loss/loss_functions.py``
(before 0.6.0 ``algorithms/loss_functions.py``), ``algorithms/utils.py`` (calculate_kl, baseline and
standard deviation), ``algorithms/advantage_estimator.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from kltune.export.key import Exported, Key, Value, check_known
from kltune.export.render import yaml_text
from kltune.export.setting import Winner
from kltune.export.target import Target
from kltune.export.texts import text_keys, text_warnings

_WEIGHTED: Final = (0, 7, 0)
"""First release whose KL in the loss carries a differentiable weight: k3 and k1 turn from forward
(or nothing) to reverse KL, and k2 becomes biased."""

_TYPED: Final = "loss_fn.reference_policy_kl_type"
"""From 0.5.0 on; before, always k3."""


def export_nemo_rl(winner: Winner, target: Target) -> Exported:
    """Build the file.

    Raises:
        SpecError: NeMo-RL's GRPO can't run the setting; the message names the nearest thing that works.
    """
    _check(winner, target)
    warnings = cautions(winner, target)
    beta = convert.held(
        winner, framework="NeMo-RL", why_not="NeMo-RL has no controller that moves the coefficient"
    )
    warnings += beta.warnings
    keys = [
        *_advantage(winner, target, warnings),
        *_kl(winner, target, beta),
        *_policy(winner, warnings),
        *_sizes(winner, target),
        *_optimiser(winner, target),
        *text_keys(winner, target),
    ]
    warnings += text_warnings(winner, keys)
    check_known(tuple(keys), target.keys)
    found = Exported("nemo-rl", target.version, tuple(keys), tuple(warnings))
    return found.with_text(nemo_rl_text(found, heading(winner, target)))


def nemo_rl_text(found: Exported, lines: Sequence[str]) -> str:
    """The YAML file, ``lines`` on top of it."""
    before = [
        "# Lay it over your own: defaults: PATH/grpo_math_1B.yaml as a first line, or merge by hand."
    ]
    return yaml_text(found, lines, before)


def _check(winner: Winner, target: Target) -> None:
    """Refuse what this trainer can't do."""
    kind, trainer, penalty = convert.gradient(winner), winner.trainer, winner.setting.penalty
    if trainer.algorithm == "ppo":
        _refuse(
            "kltune writes NeMo-RL's GRPO configuration only", "take --to verl or --to openrlhf"
        )
    if trainer.algorithm == "reinforce" and "grpo.adv_estimator.name" not in target.keys:
        _refuse(f"NeMo-RL {target.version} has no REINFORCE++", "use --version 0.6.0 or newer")
    if trainer.epochs > 1:
        _refuse(
            f"its GRPO passes once over a rollout, the study {trainer.epochs} times (trainer.epochs)",
            "take --to trl, verl or openrlhf",
        )
    if kind is Gradient.FULL:
        _refuse(
            f"{penalty} pays the KL in the reward; NeMo-RL's GRPO ignores use_kl_in_reward and switches the KL of the "
            "loss off with it, so there would be none at all, and its REINFORCE++ pays a token's KL at that token only",
            "take --to verl or --to openrlhf, or a trial with k2-loss or wk3-loss",
        )
    if kind is Gradient.OTHER:
        _refuse(
            f"kltune has no setting of NeMo-RL with the gradient of {penalty}",
            "take a trial with k2-loss or k3-loss",
        )
    if kind is Gradient.FORWARD and target.number >= _WEIGHTED:
        _refuse(
            f"{penalty} has a forward-KL gradient; from 0.7.0 on NeMo-RL's k3 has the reverse one",
            "use --version 0.6.0, or a trial with k2-loss or wk3-loss",
        )
    if kind is Gradient.LOCAL and target.number < _WEIGHTED and _TYPED not in target.keys:
        _refuse(
            f"{penalty} has a reverse-KL gradient; NeMo-RL {target.version} knows k3 alone, whose gradient is forward",
            "use --version 0.5.0 or newer, or a trial with k3-loss",
        )


def _advantage(winner: Winner, target: Target, warnings: list[str]) -> list[Key]:
    algorithm = winner.trainer.algorithm
    if algorithm == "reinforce":
        return [
            Key(
                "grpo.adv_estimator.name",
                "reinforce_plus_plus",
                "algorithm reinforce: whitened over the batch",
            ),
            Key(
                "grpo.adv_estimator.minus_baseline",
                False,
                "the study takes no group mean off first",
            ),
        ]
    is_divided, leaves_out = algorithm == "grpo", algorithm == "rloo"
    if is_divided and target.number < (0, 4, 0):
        warnings.append(
            "normalize_rewards: before 0.4.0 the standard deviation is taken with n, not n - 1: advantages are larger by "
            f"{(target.group / (target.group - 1)) ** 0.5:.3g}, and so the KL counts less by that"
        )
    mean = (
        "minus the mean of the group's others"
        if leaves_out
        else "minus the group's mean, its own reward included"
    )
    return [
        Key(
            "grpo.normalize_rewards",
            is_divided,
            "divided by the group's standard deviation" if is_divided else "divided by nothing",
        ),
        Key("grpo.use_leave_one_out_baseline", leaves_out, f"reward {mean}; its recipes have true"),
    ]


def _kl(winner: Winner, target: Target, beta: Held) -> list[Key]:
    kind, name = convert.gradient(winner), "loss_fn.reference_policy_kl_penalty"
    if kind is Gradient.NONE:
        return [Key(name, 0.0, no_kl_words(winner))]
    found = convert.coefficient(winner, target, beta.beta)
    keys = [Key(name, found.value, f"{found.words}; {beta.words}")]
    if _TYPED in target.keys:
        is_weighted = target.number >= _WEIGHTED
        estimator = "k3" if is_weighted or kind is Gradient.FORWARD else "k2"
        keys.append(
            Key(
                _TYPED,
                estimator,
                f"{kind.value} in {target.version}, as {winner.setting.penalty}; 0.7.0 changed it",
            )
        )
        if is_weighted:
            several = updates_per_rollout(winner) > 1
            words = (
                "weight against the sampling policy, as in the study"
                if several
                else "one update a rollout: the weight is 1"
            )
            keys.append(Key("loss_fn.use_on_policy_kl_approximation", several, words))
    clip = winner.trainer.kl.clip
    off: tuple[tuple[str, Value, str], ...] = (
        ("loss_fn.kl_input_clamp_value", None, "no clamp, as in the study; its default is 20 nats"),
        (
            "loss_fn.kl_output_clamp_value",
            clip,
            "no clamp, as in the study; its default is 10 nats"
            if clip is None
            else "trainer.kl.clip",
        ),
    )
    keys += [Key(*one) for one in off if one[0] in target.keys]
    if "loss_fn.use_kl_in_reward" in target.keys:
        keys.append(
            Key(
                "loss_fn.use_kl_in_reward",
                False,
                "true would switch the KL of GRPO off without a word",
            )
        )
    return keys


def _policy(winner: Winner, warnings: list[str]) -> list[Key]:
    trainer = winner.trainer
    is_token_mean = trainer.loss_aggregation != "seq-mean-token-mean"
    words = (
        "mean over all tokens" if is_token_mean else "mean over completions of their token means"
    )
    if trainer.loss_aggregation in ("constant", "seq-mean-token-sum"):
        warnings.append(
            f"aggregation: the study's {trainer.loss_aggregation} is the token mean times a constant: max_grad_norm sees "
            "it, AdamW does not, beta is the same"
        )
    if trainer.importance == "sequence" and updates_per_rollout(winner) > 1:
        warnings.append(
            "importance: the study's ratio was of the whole completion; here it is per token"
        )
    if trainer.entropy_bonus:
        warnings.append("entropy_bonus: NeMo-RL's loss has none; it is left out")
    if trainer.reference.every is not None:
        warnings.append(
            "reference.every: NeMo-RL's reference stays the start; the study's followed the policy"
        )
    high = trainer.clip_high
    return [
        Key("loss_fn.token_level_loss", is_token_mean, f"{words}; policy loss and KL alike"),
        Key("loss_fn.ratio_clip_min", trainer.clip_ratio, "trainer.clip_ratio"),
        Key(
            "loss_fn.ratio_clip_max",
            high,
            "trainer.clip_ratio_high" if high != trainer.clip_ratio else "the same",
        ),
        Key(
            "loss_fn.ratio_clip_c",
            trainer.clip_ratio_max,
            "trainer.clip_ratio_max; null: no dual clip",
        ),
    ]


def _sizes(winner: Winner, target: Target) -> list[Key]:
    minibatches = winner.trainer.minibatches
    if target.batch % minibatches:
        _refuse(
            f"{target.batch} completions can't be cut into {minibatches} equal minibatches",
            "give another --batch",
        )
    return [
        Key(
            "grpo.num_prompts_per_step",
            target.prompts,
            f"{target.batch} completions / {target.group}",
        ),
        Key(
            "grpo.num_generations_per_prompt",
            target.group,
            f"completions per prompt ({target.whose('group')})",
        ),
        Key(
            "policy.train_global_batch_size",
            target.batch // minibatches,
            f"completions per update: trainer.minibatches {minibatches}",
        ),
        Key(
            "policy.generation.temperature",
            winner.trainer.temperature,
            "of sampling and of all log-probs",
        ),
        Key("policy.generation.top_k", None, "the whole distribution, which the KL is of"),
        Key(
            "policy.generation.max_new_tokens",
            target.max_new_tokens,
            f"tokens ({target.whose('max_new_tokens')})",
        ),
    ]


def _optimiser(winner: Winner, target: Target) -> list[Key]:
    trainer, rank = winner.trainer, winner.source.lora_rank
    is_set = target.is_studied or bool(winner.source.read_from)
    what = "all weights" if rank is None else f"LoRA of rank {rank}"
    comment = f"the study's, for {what} on {winner.source.base}"
    keys = [
        Key("policy.optimizer.kwargs.lr", winner.setting.learning_rate, comment, is_set),
        Key("policy.optimizer.kwargs.weight_decay", trainer.weight_decay, "trainer.weight_decay"),
        Key("policy.max_grad_norm", trainer.max_grad_norm, "trainer.max_grad_norm"),
    ]
    if winner.stop is not None:
        words = last_step_words(winner.stop)
        keys.append(Key("grpo.max_num_steps", winner.stop.last_step, words, is_set))
    return keys


def _refuse(why: str, nearest: str) -> NoReturn:
    raise SpecError(f"--to nemo-rl: {why}; {nearest}")
