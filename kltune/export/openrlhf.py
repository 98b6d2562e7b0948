"""A setting and a target in; the flags of OpenRLHF's train_ppo_ray out, as a shell script.

Read in OpenRLHF's tags on record in kltune/export/keys: ``trainer/ppo_utils/experience_maker.py``
(baseline and division first, then the KL per token, then reward-to-go), ``trainer/ray/ppo_actor.py``
(KL in the loss times the controller's value), ``models/utils.py`` (clamp to ±10).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from kltune.errors import SpecError
from kltune.export import convert
from kltune.export.cautions import cautions, heading, no_kl_words, updates_per_rollout
from kltune.export.convert import Gradient, Held, Number
from kltune.export.key import Exported, Key, check_known
from kltune.export.openrlhf_flags import dynamic_batch_words, flag
from kltune.export.render import shell_text
from kltune.export.setting import Winner
from kltune.export.target import Target
from kltune.export.texts import text_keys, text_warnings

_ESTIMATORS: Final = {
    "grpo": "group_norm",
    "dr-grpo": "dr_grpo",
    "rloo": "rloo",
    "reinforce": "reinforce",
    "ppo": "gae",
}

_WHOLE_BATCH: Final = (0, 10, 3)
"""First release whose token mean spans the whole update."""

_DOUBTED: Final = (0, 9, 1)
"""First release whose trainer notes that the adaptive controller is incompatible there."""


def export_openrlhf(winner: Winner, target: Target) -> Exported:
    """Build the script.

    Raises:
        SpecError: OpenRLHF can't run the setting; the message names the nearest thing that works.
    """
    kind = convert.gradient(winner)
    if kind is Gradient.OTHER:
        _refuse(
            f"kltune has no setting of OpenRLHF with the gradient of {winner.setting.penalty}",
            "take a trial with k1-reward, k2-loss or k3-loss",
        )
    warnings = cautions(winner, target)
    beta = convert.held(winner, framework="OpenRLHF", why_not=None)
    warnings += beta.warnings
    keys = [
        *_advantage(winner, target),
        *_kl(winner, target, beta, warnings),
        *_policy(winner, target, warnings),
        *_sizes(winner, target),
        *_optimiser(winner, target, warnings),
        *text_keys(winner, target),
    ]
    warnings += text_warnings(winner, keys)
    check_known(tuple(keys), target.keys)
    found = Exported("openrlhf", target.version, tuple(keys), tuple(warnings))
    return found.with_text(openrlhf_text(found, heading(winner, target)))


def openrlhf_text(found: Exported, lines: Sequence[str]) -> str:
    """The script, ``lines`` on top of it."""
    return shell_text(found, lines, "python3 -m openrlhf.cli.train_ppo_ray")


def _advantage(winner: Winner, target: Target) -> list[Key]:
    algorithm, critic = winner.trainer.algorithm, winner.trainer.value_function
    name = _ESTIMATORS[algorithm]
    keys = [flag(target, "--algo.advantage.estimator", name, f"algorithm {algorithm}")]
    if critic is not None:
        keys += [
            flag(target, "--algo.advantage.gamma", critic.gamma, "trainer.critic.gamma"),
            flag(target, "--algo.advantage.lambd", critic.gae_lambda, "trainer.critic.gae_lambda"),
        ]
    return keys


def _kl(winner: Winner, target: Target, beta: Held, warnings: list[str]) -> list[Key]:
    kind = convert.gradient(winner)
    if kind is Gradient.NONE:
        return [
            flag(
                target,
                "--algo.kl.init_coef",
                0.0,
                no_kl_words(winner),
            )
        ]
    in_loss = kind is not Gradient.FULL
    found = (
        convert.coefficient(winner, target, beta.beta)
        if in_loss
        else _paid(winner, target, beta, warnings)
    )
    estimator = {Gradient.FULL: "k1", Gradient.LOCAL: "k2", Gradient.FORWARD: "k3"}[kind]
    keys = [
        flag(target, "--algo.kl.init_coef", found.value, f"{found.words}; {beta.words}"),
        flag(
            target, "--algo.kl.estimator", estimator, f"{kind.value}, as {winner.setting.penalty}"
        ),
    ]
    if in_loss:
        keys.append(flag(target, "--algo.kl.use_loss", True, "the KL stands in the loss"))
        warnings += dynamic_batch_words(target.number)
        if kind is Gradient.LOCAL and updates_per_rollout(winner) > 1:
            warnings.append(
                "estimator k2: OpenRLHF has no importance ratio on the KL; with several updates on a rollout its "
                "gradient is off by the policy's drift since then"
            )
    if convert.is_wider(winner):
        warnings.append(
            "OpenRLHF clamps a token's KL to ±10 nats; beyond that it has no gradient; the study's had"
        )
    return keys + (_controller(winner, target, in_loss, warnings) if beta.is_adaptive else [])


def _paid(winner: Winner, target: Target, beta: Held, warnings: list[str]) -> Number:
    """The price beside what OpenRLHF has made of the reward by then: it takes the KL off after the baseline."""
    algorithm = winner.trainer.algorithm
    if winner.trainer.credit != "reward-to-go":
        warnings.append(
            "OpenRLHF pays each token's KL at it and those before it (reward-to-go): the same expected gradient"
        )
    if algorithm in ("reinforce", "ppo"):
        return convert.price(winner, target, beta.beta)
    how = {
        "grpo": "after division by the group's standard deviation, so the price is in its units",
        "dr-grpo": "after the group's mean was taken off",
        "rloo": "after the mean of the group's others was taken off",
    }[algorithm]
    warnings.append(
        f"OpenRLHF takes the KL off {how}; the KL itself gets no baseline: more noise, the same expected gradient"
    )
    found = convert.coefficient(winner, target, beta.beta)
    return Number(found.value, f"{found.words} (per nat of sequence KL)")


def _controller(winner: Winner, target: Target, in_loss: bool, warnings: list[str]) -> list[Key]:
    set_point, horizon = convert.target_per_token(winner, target), convert.horizon(winner, target)
    assert set_point is not None, "an adaptive beta has a target"
    if target.number >= _DOUBTED:
        warnings.append(
            "OpenRLHF's source says that its adaptive controller is incompatible with its trainer (a TODO in "
            "trainer/ppo_trainer.py), yet it calls it with the logged KL after every step: watch the coefficient"
        )
    measure = "mean over responses of their token means of k1"
    if in_loss:
        measure = "token mean of the estimator in the loss"
        warnings.append(
            "the controller compares its target with the KL by the loss's own estimator (k2 reads more than the exact "
            "KL once policies are far apart)"
        )
    return [
        flag(
            target,
            "--algo.kl.target",
            set_point.value,
            f"{set_point.words}; compared with the {measure}",
        ),
        flag(
            target,
            "--algo.kl.horizon",
            max(1, round(horizon.value)),
            f"{horizon.words}; whole numbers only",
        ),
    ]


def _policy(winner: Winner, target: Target, warnings: list[str]) -> list[Key]:
    trainer = winner.trainer
    if trainer.loss_aggregation == "seq-mean-token-mean":
        warnings.append(
            "aggregation: the study weighed each completion by 1 / its length; OpenRLHF takes the mean over tokens"
        )
    elif trainer.loss_aggregation != "token-mean":
        warnings.append(
            f"aggregation: the study's {trainer.loss_aggregation} is OpenRLHF's token mean times a constant: max_norm sees "
            "it, AdamW does not, beta is the same"
        )
    if target.number < _WHOLE_BATCH:
        warnings.append(
            f"aggregation: before {'.'.join(map(str, _WHOLE_BATCH))} the token mean is taken per micro-batch"
        )
    if trainer.reference.every is not None:
        warnings.append(
            "reference.every: OpenRLHF's reference stays the start; the study's followed the policy"
        )
    if trainer.importance == "sequence" and updates_per_rollout(winner) > 1:
        warnings.append(
            "importance: the study's ratio was of the whole completion; here it is per token"
        )
    warnings.append(
        "OpenRLHF clips the reward to ±10 after the baseline (its clip_range): larger ones are cut"
    )
    keys = [flag(target, "--actor.eps_clip", trainer.clip_ratio, "trainer.clip_ratio")]
    if trainer.clip_ratio_high is not None:
        both = (trainer.clip_ratio, trainer.clip_high)
        keys.append(
            flag(
                target, "--actor.eps_clip_low_high", both, "trainer.clip_ratio and clip_ratio_high"
            )
        )
    if trainer.clip_ratio_max is not None:
        keys.append(
            flag(target, "--actor.dual_clip", trainer.clip_ratio_max, "trainer.clip_ratio_max")
        )
    if trainer.entropy_bonus:
        keys.append(
            flag(target, "--actor.entropy_coef", trainer.entropy_bonus, "trainer.entropy_bonus")
        )
    return keys


def _sizes(winner: Winner, target: Target) -> list[Key]:
    trainer, minibatches = winner.trainer, winner.trainer.minibatches
    if target.batch % minibatches:
        _refuse(
            f"{target.batch} completions can't be cut into {minibatches} equal minibatches",
            "give another --batch",
        )
    rows = target.batch // minibatches
    return [
        flag(
            target,
            "--rollout.batch_size",
            target.prompts,
            f"prompts per step: {target.batch} completions / {target.group}",
        ),
        flag(
            target,
            "--rollout.n_samples_per_prompt",
            target.group,
            f"completions per prompt ({target.whose('group')})",
        ),
        flag(
            target,
            "--train.batch_size",
            rows,
            f"completions per update: trainer.minibatches {minibatches}",
        ),
        flag(target, "--train.max_epochs", trainer.epochs, "trainer.epochs"),
        flag(
            target, "--rollout.temperature", trainer.temperature, "of sampling and of all log-probs"
        ),
        flag(
            target,
            "--rollout.max_new_tokens",
            target.max_new_tokens,
            f"tokens ({target.whose('max_new_tokens')})",
        ),
    ]


def _optimiser(winner: Winner, target: Target, warnings: list[str]) -> list[Key]:
    trainer, rank = winner.trainer, winner.source.lora_rank
    is_set = target.is_studied or bool(winner.source.read_from)
    what = "all weights" if rank is None else f"LoRA of rank {rank}"
    rate = winner.setting.learning_rate
    comment = f"the study's, for {what} on {winner.source.base}"
    keys = [flag(target, "--actor.adam.lr", rate, comment, is_set=is_set)]
    constant = flag(
        target, "--actor.lr_scheduler", "constant", "as in the study; its default decays to a tenth"
    )
    if constant.name in target.keys:
        keys.append(constant)
    else:
        warnings.append(
            f"OpenRLHF {target.version} always decays the learning rate (cosine); the study's was constant"
        )
    keys += [
        flag(target, "--actor.adam.weight_decay", trainer.weight_decay, "trainer.weight_decay"),
        flag(target, "--actor.max_norm", trainer.max_grad_norm, "trainer.max_grad_norm"),
    ]
    critic = trainer.value_function
    if critic is not None:
        own = critic.learning_rate or rate
        keys.append(
            flag(target, "--critic.adam.lr", own, "trainer.critic.learning_rate", is_set=is_set)
        )
        if critic.value_clip is not None:
            keys.append(
                flag(target, "--critic.value_clip", critic.value_clip, "trainer.critic.value_clip")
            )
    return keys


def _refuse(why: str, nearest: str) -> NoReturn:
    raise SpecError(f"--to openrlhf: {why}; {nearest}")
