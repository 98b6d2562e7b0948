"""A setting and a target in; verl's configuration out, as YAML and as overrides on its command line.

Read in verl's tags on record in kltune/export/keys: ``trainer/ppo/core_algos.py`` (advantages,
kl_penalty, agg_loss, controllers), ``trainer/ppo/ray_trainer.py`` (apply_kl_penalty),
``workers/actor/dp_actor.py`` and ``workers/utils/losses.py`` (KL in the loss).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from kltune.errors import SpecError
from kltune.export import convert
from kltune.export.cautions import (
    NOT_SET,
    cautions,
    heading,
    last_step_words,
    updates_per_rollout,
)
from kltune.export.convert import Gradient
from kltune.export.key import Exported, Key, check_known
from kltune.export.releases import number_of
from kltune.export.render import hydra_text, yaml_text
from kltune.export.setting import Winner
from kltune.export.target import Target
from kltune.export.texts import text_keys, text_warnings
from kltune.export.verl_kl import ACTOR, kl_keys

_WHOLE_BATCH: Final = (0, 8, 0)
"""First release whose means span the whole batch by default."""

_PACKAGE: Final = (0, 5, 0)
"""First release whose folder of configurations is a package that Hydra finds."""

_AS_CONFIG: Final = (
    "# Or this file: python3 -m verl.trainer.main_ppo --config-path FOLDER --config-name NAME",
    "hydra:",
    "  searchpath:",
    "    - pkg://verl.trainer.config",
    "defaults:",
    "  - ppo_trainer",
    "  - _self_",
)

_NO_BOUND: Final = 1e6
"""A dual clip that nothing reaches; verl can't be told to have none."""

_ROLLOUT: Final = "actor_rollout_ref.rollout"

_ESTIMATORS: Final = {
    "grpo": "grpo",
    "dr-grpo": "grpo",
    "rloo": "rloo",
    "reinforce": "reinforce_plus_plus",
    "ppo": "gae",
}


def export_verl(winner: Winner, target: Target) -> Exported:
    """Build the file.

    Raises:
        SpecError: verl can't run the setting; the message names the nearest thing that works.
    """
    kind = convert.gradient(winner)
    if kind is Gradient.OTHER:
        _refuse(
            f"kltune has no setting of verl with the gradient of {winner.setting.penalty}",
            "take a trial with k1-reward, k2-loss or k3-loss",
        )
    warnings = cautions(winner, target)
    why_not = None
    if kind is not Gradient.FULL:
        why_not = "verl's controller moves the coefficient in the reward only, never kl_loss_coef"
    elif "algorithm.kl_ctrl.horizon" not in target.keys:
        why_not = f"verl {target.version} has no horizon among its keys"
    beta = convert.held(winner, framework="verl", why_not=why_not)
    warnings += beta.warnings
    if target.is_studied and not winner.source.read_from:
        warnings.append(NOT_SET)  # other sizes are warned of with it already
    keys = [
        *_advantage(winner, target, warnings),
        *kl_keys(winner, target, beta, warnings),
        *_policy(winner, target, warnings),
        *_sizes(winner, target),
        *_optimiser(winner, target),
        *text_keys(winner, target),
    ]
    warnings += text_warnings(winner, keys)
    check_known(tuple(keys), target.keys)
    found = Exported("verl", target.version, tuple(keys), tuple(warnings))
    return found.with_text(verl_text(found, heading(winner, target)))


def verl_text(found: Exported, lines: Sequence[str]) -> str:
    """The YAML file, ``lines`` on top of it, then the same as a command."""
    before = [
        "# As overrides on the command line:",
        *hydra_text(found.keys, "python3 -m verl.trainer.main_ppo"),
        *(_AS_CONFIG if number_of(found.version) >= _PACKAGE else ()),
    ]
    return yaml_text(found, lines, before)


def _advantage(winner: Winner, target: Target, warnings: list[str]) -> list[Key]:
    algorithm, critic = winner.trainer.algorithm, winner.trainer.value_function
    keys = [Key("algorithm.adv_estimator", _ESTIMATORS[algorithm], f"algorithm {algorithm}")]
    name = "algorithm.norm_adv_by_std_in_grpo"
    if algorithm in ("grpo", "dr-grpo"):
        is_divided = algorithm == "grpo"
        if name in target.keys:
            words = (
                "divided by the group's standard deviation"
                if is_divided
                else "divided by nothing (Dr.GRPO)"
            )
            keys.append(Key(name, is_divided, f"reward minus the group's mean, {words}"))
        elif not is_divided:
            _refuse(
                f"verl {target.version} always divides by the group's standard deviation",
                "use --version 0.4.0 or newer",
            )
    if critic is not None:
        if not critic.whiten:
            warnings.append(
                "critic.whiten: verl always whitens the advantages; the study did not, so its steps were of another size"
            )
        keys += [
            Key("algorithm.gamma", critic.gamma, "trainer.critic.gamma"),
            Key("algorithm.lam", critic.gae_lambda, "trainer.critic.gae_lambda"),
        ]
    if algorithm == "reinforce" and convert.gradient(winner) is Gradient.FULL:
        if winner.trainer.credit != "reward-to-go":
            warnings.append(
                "kl.credit: verl's REINFORCE++ pays each token's KL at it and those before it (reward-to-go): the same "
                "expected gradient"
            )
    elif (
        winner.trainer.credit == "reward-to-go"
        and convert.gradient(winner) is Gradient.FULL
        and critic is None
    ):
        warnings.append(
            "kl.credit: verl pays the whole completion's KL at every token: the same expected gradient"
        )
    return keys


def _policy(winner: Winner, target: Target, warnings: list[str]) -> list[Key]:
    trainer = winner.trainer
    keys = _aggregation(winner, target, warnings)
    if trainer.importance == "sequence" and updates_per_rollout(winner) > 1:
        warnings.append(
            "importance: the study's ratio was of the whole completion; verl's is per token"
        )
    high = trainer.clip_high
    keys.append(Key(f"{ACTOR}.clip_ratio", trainer.clip_ratio, "trainer.clip_ratio"))
    if f"{ACTOR}.clip_ratio_low" in target.keys:
        bound = trainer.clip_ratio_max
        why = (
            "trainer.clip_ratio_max"
            if bound is not None
            else "the study had no dual clip; verl's default of 3 is one"
        )
        keys += [
            Key(
                f"{ACTOR}.clip_ratio_low",
                trainer.clip_ratio,
                "this one is used, not clip_ratio alone",
            ),
            Key(
                f"{ACTOR}.clip_ratio_high",
                high,
                "trainer.clip_ratio_high" if high != trainer.clip_ratio else "the same",
            ),
            Key(f"{ACTOR}.clip_ratio_c", _NO_BOUND if bound is None else bound, why),
        ]
    elif high != trainer.clip_ratio or trainer.clip_ratio_max is not None:
        warnings.append(
            f"verl {target.version} has one clip: clip_ratio_high and clip_ratio_max are left out"
        )
    keys += [
        Key(
            f"{ACTOR}.entropy_coeff",
            trainer.entropy_bonus,
            "trainer.entropy_bonus; its default was 0.001 before 0.4.0",
        ),
        Key(f"{ACTOR}.ppo_epochs", trainer.epochs, "trainer.epochs"),
    ]
    if winner.trainer.reference.every is not None:
        warnings.append(
            "reference.every: verl's reference stays the start; the study's followed the policy"
        )
    return keys


def _aggregation(winner: Winner, target: Target, warnings: list[str]) -> list[Key]:
    trainer = winner.trainer
    mode = (
        "seq-mean-token-sum-norm"
        if trainer.loss_aggregation == "constant"
        else trainer.loss_aggregation
    )
    name = f"{ACTOR}.loss_agg_mode"
    if name not in target.keys:
        if mode != "token-mean":
            warnings.append(
                f"verl {target.version} has the token mean only; the study's aggregation was {mode}"
            )
        return []
    keys = [Key(name, mode, "of policy loss and KL alike")]
    if mode == "seq-mean-token-sum-norm" and f"{ACTOR}.loss_scale_factor" in target.keys:
        keys.append(
            Key(
                f"{ACTOR}.loss_scale_factor",
                target.max_new_tokens,
                "Dr.GRPO's constant; null: the padded width",
            )
        )
    if mode == "seq-mean-token-sum-norm" and target.number < (0, 7, 1):
        warnings.append(
            "loss_agg_mode: before 0.7.1 verl does not divide it by the number of responses: a larger gradient, which "
            "grad_clip sees and AdamW does not"
        )
    if mode in ("token-mean", "seq-mean-token-mean") and target.number < _WHOLE_BATCH:
        warnings.append(
            "loss_agg_mode: up to 0.7.x the means are of each micro-batch, then averaged; equal ones only if lengths are"
        )
    return keys


def _sizes(winner: Winner, target: Target) -> list[Key]:
    minibatches = winner.trainer.minibatches
    if target.prompts % minibatches:
        _refuse(
            f"verl cuts a step by prompts, and {target.prompts} of them can't be cut into {minibatches} minibatches",
            "give another --batch",
        )
    return [
        Key(
            "data.train_batch_size",
            target.prompts,
            f"prompts per step: {target.batch} completions / {target.group}",
        ),
        Key(
            f"{ACTOR}.ppo_mini_batch_size",
            target.prompts // minibatches,
            f"prompts per update: trainer.minibatches {minibatches}",
        ),
        Key(f"{_ROLLOUT}.n", target.group, f"completions per prompt ({target.whose('group')})"),
        Key(
            f"{_ROLLOUT}.temperature",
            winner.trainer.temperature,
            "of sampling and of all log-probs",
        ),
        Key(
            "data.max_response_length",
            target.max_new_tokens,
            f"tokens ({target.whose('max_new_tokens')})",
        ),
    ]


def _optimiser(winner: Winner, target: Target) -> list[Key]:
    trainer, rank = winner.trainer, winner.source.lora_rank
    is_set = bool(winner.source.read_from)
    what = "all weights" if rank is None else f"LoRA of rank {rank}"
    rate = winner.setting.learning_rate
    keys = [
        Key(f"{ACTOR}.optim.lr", rate, f"the study's, for {what} on {winner.source.base}", is_set),
        Key(f"{ACTOR}.grad_clip", trainer.max_grad_norm, "trainer.max_grad_norm"),
    ]
    if f"{ACTOR}.optim.weight_decay" in target.keys:
        keys.append(
            Key(f"{ACTOR}.optim.weight_decay", trainer.weight_decay, "trainer.weight_decay")
        )
    critic = trainer.value_function
    if critic is not None:
        own = critic.learning_rate or rate
        keys.append(
            Key("critic.optim.lr", own, "trainer.critic.learning_rate, else the policy's", is_set)
        )
        if critic.value_clip is not None:
            keys.append(
                Key("critic.cliprange_value", critic.value_clip, "trainer.critic.value_clip")
            )
    if winner.stop is not None:
        words = last_step_words(winner.stop)
        keys.append(Key("trainer.total_training_steps", winner.stop.last_step, words, is_set))
    return keys


def _refuse(why: str, nearest: str) -> NoReturn:
    raise SpecError(f"--to verl: {why}; {nearest}")
