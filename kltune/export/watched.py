"""An exported setting in, which of the numbers that its trainer logs is the KL to the reference, and in which unit, out.

Read in TRL 1.16.0, verl 0.4.0 to 0.9.0 and 1dda039b9 (trainer/ppo/ray_trainer.py 78-115, workers/utils/losses.py
132-143; up to 0.7.1 workers/actor/dp_actor.py), OpenRLHF 0.8.0 to 0.11.0 (trainer/ray/ppo_actor.py,
trainer/ppo_utils/experience_maker.py, trainer/ppo_trainer.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from kltune.errors import SpecError
from kltune.export.key import Exported
from kltune.export.openrlhf_flags import dynamic_batch_words
from kltune.export.releases import number_of
from kltune.export.target import Target

FRAMEWORKS: Final = ("trl", "verl", "openrlhf")

NATS_TOKEN: Final = "nats/token"
NATS_SEQUENCE: Final = "nats/sequence"

_ACTOR: Final = "actor_rollout_ref.actor."

_K2: Final = (
    "the KL that {title} logs is k2, half the squared log-ratio: it agrees with the KL while that is "
    "small and is no estimate of it where it is large; the limits are those of the exact KL"
)
_NO_REFERENCE: Final = (
    "beta is 0, so {title} holds no reference and logs no KL, and the tripwire sees only what is not "
    "finite; {way}"
)


@dataclass(frozen=True, slots=True)
class Watched:
    """What a tripwire reads of one trainer's log."""

    title: str
    name: str
    """Of the KL to the reference, without a leading ``train/``."""
    meaning: str
    unit: str
    loss: str
    gradient: str
    """Names of a loss and of the gradient's norm."""
    why_no_kl: str
    use: tuple[str, ...]
    """Lines of a module's docstring: how it is put into the trainer."""
    factor: float = 1.0
    """A logged value times this is the KL in ``unit``."""
    factor_why: str = ""
    finite_why: str = ""
    zero_is_missing: bool = False
    none_is_broken: bool = False
    """Whether a loss or gradient norm of None was not finite."""
    warnings: tuple[str, ...] = ()


def watched(exported: Exported, target: Target) -> Watched:
    """Find the KL in what the framework of ``exported`` logs.

    Raises:
        SpecError: a framework, or an aggregation of its loss, whose log no tripwire can read.
    """
    if exported.framework == "trl":
        return _trl(exported)
    if exported.framework == "verl":
        return _verl(exported, target)
    if exported.framework == "openrlhf":
        return _openrlhf(exported, target)
    raise SpecError(
        f"--framework: a tripwire reads the log of {', '.join(FRAMEWORKS)} (got {exported.framework!r})"
    )


def _trl(exported: Exported) -> Watched:
    values, trainer = exported.values, exported.builder.removesuffix("Config") or "GRPO"
    beta = values.get("beta", values.get("kl_coef"))
    found = Watched(
        title=f"TRL ({trainer}Trainer)",
        none_is_broken=True,
        name="kl",
        meaning=(
            f"{'k1' if trainer == 'RLOO' else 'k3'}, mean over all completion tokens of all processes, "
            "coefficient not in it"
        ),
        unit=NATS_TOKEN,
        loss="loss",
        gradient="grad_norm",
        finite_why=(
            "By default transformers logs a mean in place of a loss that is not finite "
            "(logging_nan_inf_filter), so the KL tells first."
        ),
        why_no_kl="TRL logs none at beta 0; a beta of 1e-9 loads the reference and has it logged",
        use=(
            "    from tripwire import TripwireCallback",
            f"    trainer = {trainer}Trainer(..., callbacks=[TripwireCallback()])  # with logging_steps=1",
        ),
        warnings=(_NO_REFERENCE.format(title="TRL", way="a beta of 1e-9 has the KL logged"),)
        if beta == 0
        else (),
    )
    if "kl_coef" not in values:
        return found
    return replace(  # TRL's PPO, and its RLOO of old
        found,
        name="objective/kl",
        meaning="k1 summed over each completion's tokens, mean over completions, coefficient not in it",
        unit=NATS_SEQUENCE,
        loss="loss/policy_avg",
        finite_why="",
        why_no_kl=f"TRL's {trainer}Trainer of {exported.version} logs it at every step",
    )


def _verl(exported: Exported, target: Target) -> Watched:
    given = _Given(exported, target)
    found = Watched(
        title="verl",
        name="actor/reward_kl_penalty",
        meaning="",
        unit=NATS_TOKEN,
        loss="actor/pg_loss",
        gradient="actor/grad_norm",
        why_no_kl=(
            "verl logs none unless algorithm.use_kl_in_reward or actor.use_kl_loss is true; with a "
            "kl_loss_coef of 0 it is logged alone"
        ),
        use=_two_lines("verl/utils/tracking.py", "Tracking.log", "logged"),
        zero_is_missing=True,  # verl 0.7 logs an actor/kl_loss of 0 where there is none
    )
    if given("algorithm.use_kl_in_reward"):
        estimator = _estimator(given("algorithm.kl_penalty"))
        meaning = "mean over each response's tokens, then over responses, coefficient not in it"
        return replace(
            found,
            name=found.name if number_of(exported.version) >= (0, 4) else "critic/kl",
            meaning=f"{estimator} of the policy at rollout, {meaning}",
            warnings=_k2_warning(estimator, "verl"),
        )
    estimator = _estimator(given(f"{_ACTOR}kl_loss_type"))
    mode = str(given(f"{_ACTOR}loss_agg_mode") or "token-mean")
    constant = float(given(f"{_ACTOR}loss_scale_factor") or target.max_new_tokens)
    unit, words, undo = _of_mode(mode, constant)
    factor, why, warnings = _verl_sums(exported, given)
    if not given(f"{_ACTOR}use_kl_loss"):
        way = f"set {_ACTOR}use_kl_loss true and {_ACTOR}kl_loss_coef 0 to have it logged"
        warnings = (*warnings, _NO_REFERENCE.format(title="verl", way=way))
    undone = "" if undo == 1 else f" verl divides by loss_scale_factor {constant:g}: undone here."
    return replace(
        found,
        name="actor/kl_loss",
        meaning=f"{estimator} of the policy now, {words}, coefficient not in it",
        unit=unit,
        factor=factor * undo,
        factor_why=f"{why}{undone}",
        warnings=(*_k2_warning(estimator, "verl"), *warnings),
    )


def _openrlhf(exported: Exported, target: Target) -> Watched:
    given = _Given(exported, target)
    is_new = "--algo.kl.estimator" in target.keys
    dotted, flat = "--algo.kl.", "--"
    in_loss = given(f"{dotted}use_loss" if is_new else f"{flat}use_kl_loss")
    estimator = _estimator(given(f"{dotted}estimator" if is_new else f"{flat}kl_estimator") or "k1")
    coefficient = given(f"{dotted}init_coef" if is_new else f"{flat}init_kl_coef")
    place = (
        "of the policy now, mean over tokens"
        if in_loss
        else "of the policy at rollout, mean over each response's tokens, then over responses"
    )
    way = "a coefficient of 1e-9 has it logged"
    blind = (_NO_REFERENCE.format(title="OpenRLHF", way=way),) if coefficient == 0 else ()
    shared = dynamic_batch_words(target.number) if in_loss else ()
    return Watched(
        title="OpenRLHF",
        name="kl",
        meaning=f"{estimator} {place}, clamped to ±10 per token, coefficient not in it",
        unit=NATS_TOKEN,
        loss="policy_loss",
        gradient="actor_grad_norm",
        why_no_kl="OpenRLHF logs zeros where its coefficient is 0, since no reference is held then",
        use=_two_lines(
            "openrlhf/trainer/ppo_trainer.py",
            "BasePPOTrainer.save_logs_and_checkpoints",
            "logged, and saved where a checkpoint is due",
        ),
        zero_is_missing=True,
        factor_why=" ".join(shared),
        warnings=(*_k2_warning(estimator, "OpenRLHF"), *blind, *shared),
    )


@dataclass(frozen=True, slots=True)
class _Given:
    """What a key is: as exported, else the framework's default; None where it has neither."""

    exported: Exported
    target: Target

    def __call__(self, name: str) -> Any:
        return self.exported.values.get(name, self.target.keys.defaults.get(name))


def _two_lines(file: str, method: str, done: str) -> tuple[str, ...]:
    return (
        f"Put this file on PYTHONPATH of every process, and these two lines at the end of {file}:",
        "",
        "    import tripwire",
        f"    {method} = tripwire.guarded({method})",
        "",
        f"On a stop the step is {done}; then TripwireStop ends the run, and what is left",
        "are the checkpoints that were written on schedule.",
    )


def _verl_sums(exported: Exported, given: _Given) -> tuple[float, str, tuple[str, ...]]:
    """What undoes the shares and sums of the FSDP worker of 0.6 and 0.7, why, and the warning."""
    release = number_of(exported.version)
    if (0, 6) <= release < (0, 7):
        why = (
            "verl 0.6 logs actor/kl_loss divided by the micro-batches of a mini-batch "
            "(workers/actor/dp_actor.py): put ppo_mini_batch_size / ppo_micro_batch_size_per_gpu here, both "
            "as counted per GPU."
        )
        return 1.0, why, (f"KL_FACTOR must be set by hand. {why}",)
    if (0, 7) <= release < (0, 8):
        prompts, per_update = given("data.train_batch_size"), given(f"{_ACTOR}ppo_mini_batch_size")
        epochs = given(f"{_ACTOR}ppo_epochs") or 1
        updates = max(1, round(prompts / per_update)) * epochs if prompts and per_update else epochs
        why = (
            "verl 0.7 logs actor/kl_loss summed over the mini-batches and epochs of a step "
            f"(workers/actor/dp_actor.py), here {updates}."
        )
        warned = (f"KL_FACTOR is 1 / {updates}. {why}",) if updates > 1 else ()
        return 1 / updates, why, warned
    return 1.0, "", ()


def _of_mode(mode: str, constant: float) -> tuple[str, str, float]:
    """Unit, words and what a logged value is multiplied by, of a loss_agg_mode."""
    responses = "mean over responses"
    modes = {
        "token-mean": (NATS_TOKEN, "mean over all response tokens", 1.0),
        "seq-mean-token-mean": (NATS_TOKEN, f"{responses} of the mean over their tokens", 1.0),
        "seq-mean-token-sum": (NATS_SEQUENCE, f"sum over tokens, {responses}", 1.0),
        "seq-mean-token-sum-norm": (
            NATS_SEQUENCE,
            f"sum over tokens / {constant:g}, {responses}",
            constant,
        ),
    }
    if mode not in modes:
        raise SpecError(
            f"loss_agg_mode {mode}: the KL that verl logs is then a sum over the batch, and no limit fits it; "
            f"use one of {', '.join(modes)}"
        )
    return modes[mode]


def _k2_warning(estimator: str, title: str) -> tuple[str, ...]:
    return (_K2.format(title=title),) if estimator == "k2" else ()


def _estimator(name: object) -> str:
    bare = str(name or "low_var_kl").removesuffix("+")
    return {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}.get(bare, bare)
