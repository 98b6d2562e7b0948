"""A setting and a target in; what a person must know of it before a large run, as sentences, out."""

from __future__ import annotations

from typing import Final

from kltune.export.convert import Gradient, gradient
from kltune.export.setting import Stop, Winner
from kltune.export.target import Target
from kltune.spec.algorithm import RewardSpec
from kltune.spec.penalty import Penalty
from kltune.spec.trial import BetaUnit
from kltune.trial.words import (
    KL_UNIT,
    both_units,
    number,
    origin_words,
    score,
    setting_long,
)

_DENSE = frozenset(
    {
        Penalty.EXACT_FULL,
        Penalty.EXACT_LOSS,
        Penalty.TOPK_LOSS,
        Penalty.FORWARD_LOSS,
    }
)
"""Taken over the vocabulary; other trainers have the sampled token's alone."""

NOT_SET: Final = "learning rate and number of steps are the study's and are not set: they belong to its model and batch"


def heading(winner: Winner, target: Target) -> tuple[str, ...]:
    """The first lines of every exported file: what it is, what it is worth, when to stop."""
    source, setting = winner.source, winner.setting
    if source.read_from:
        return (
            f"{target.framework} {target.version}, converted by kltune from {source.study} ({source.read_from}): "
            "nothing was measured, every value is that file's or its release's default",
            f"keys: {target.keys.source}",
        )
    how = "recommended" if source.is_recommended else "chosen by --trial, not the recommended one"
    lines = [
        f"{target.framework} {target.version}, exported by kltune from study {source.study}, trial {source.trial} "
        f"({how}; {origin_words(source.origin)})",
        f"studied setting: {setting_long(setting, winner.beta_unit, winner.kl_unit, winner.trainer.credit)}; "
        f"{winner.trainer.algorithm}, on {source.base}",
        f"keys: {target.keys.source}",
    ]
    return (*lines, *outlook(winner, target))


def outlook(winner: Winner, target: Target) -> tuple[str, ...]:
    """Expected gold, when to stop, the hard limit and how sure that is."""
    lines: list[str] = []
    if winner.gold is not None:
        lines.append(f"expected gold: {gold_words(winner)}")
    if winner.stop is not None:
        lines.append(f"stop: {stop_words(winner, target.mean_tokens)}")
    limit = limit_of(winner)
    if limit is not None:
        token, seq = winner.both_units(limit, target.mean_tokens)
        lines.append(
            f"hard KL limit: {both_units(token, seq)} at a mean of {number(target.mean_tokens)} tokens "
            f"(set in {KL_UNIT[winner.kl_unit]})"
        )
    own = winner.kl_limit
    if own is not None and own != limit:
        token, seq = winner.both_units(own, target.mean_tokens)
        lines.append(f"KL limit of a checkpoint to keep: {both_units(token, seq)}")
    if winner.confirmation:
        lines.append(f"how sure: {winner.confirmation}")
    return tuple(lines)


def limit_of(winner: Winner) -> float | None:
    """The KL that must not be passed, in kl_unit: the guard's limit, else the objective's."""
    guard = winner.kl_guard
    if guard is not None and guard.limit is not None:
        return guard.limit
    return winner.kl_limit


def gold_words(winner: Winner) -> str:
    """Value, interval, start and where they come from."""
    gold = winner.gold
    assert gold is not None, "asked before"
    words = score(gold.value)
    if gold.low is not None and gold.high is not None:
        words += f" (95 % interval {score(gold.low)} to {score(gold.high)})"
    if gold.start is not None:
        words += f", {score(gold.start)} before training"
    return f"{words}; {gold.basis}"


def stop_words(winner: Winner, mean_tokens: float) -> str:
    """The window in the study's steps, and the KL to stop at for completions of this mean length."""
    stop = winner.stop
    assert stop is not None, "asked before"
    where = (
        f"at step {stop.first_step}"
        if stop.first_step == stop.last_step
        else f"between steps {stop.first_step} and {stop.last_step}"
    )
    token, seq = stop.kl(winner.kl_unit, mean_tokens)
    words = (
        f"{where} of {stop.steps_planned} (steps of {winner.trainer.rows} completions at learning rate "
        f"{number(winner.setting.learning_rate)}), at KL {both_units(token, seq)} at a mean of "
        f"{number(mean_tokens)} tokens ({stop.basis}; kept in {KL_UNIT[winner.kl_unit]}); elsewhere stop by the KL, not by the step"
    )
    return f"{words}; {stop.ended_by}" if stop.ended_by else words


def last_step_words(stop: Stop) -> str:
    """Where a number of steps to run comes from."""
    if stop.first_step == stop.last_step:
        return "the step to stop at"
    return f"the last of the steps to stop at ({stop.first_step} to {stop.last_step})"


def cautions(winner: Winner, target: Target) -> list[str]:
    """What every target has to be warned of."""
    trainer, source = winner.trainer, winner.source
    found = [*doubt_words(winner), *missed_words(winner), *target.warnings]
    if source.rivals:
        found.append(
            f"{source.rivals} other settings of the study can't be told apart from this one: its beta is one of a range"
        )
    if not source.is_recommended:
        found.append(f"trial {source.trial} is not what the study recommends")
    if trainer.reward != RewardSpec():
        found.append(_shaping_words(winner))
    if trainer.kl.clip is not None:
        found.append(
            f"trainer.kl.clip: the study clipped a token's KL to ± {number(trainer.kl.clip)} nats"
        )
    if winner.setting.penalty in _DENSE and gradient(winner) is not Gradient.NONE:
        found.append(
            f"{winner.setting.penalty} takes the KL over the vocabulary; here only the sampled token's can be had: "
            "the same expected gradient with more noise"
        )
    if not (target.is_studied or source.read_from):
        found.append(NOT_SET)
    return found


def doubt_words(winner: Winner) -> tuple[str, ...]:
    """What stands on top where the trial is none that a study would recommend; else nothing."""
    source = winner.source
    return (f"trial {source.trial} {source.doubt}",) if source.doubt else ()


def missed_words(winner: Winner) -> tuple[str, ...]:
    """What the trial's controller did where it did not hold its target; else nothing."""
    if not winner.missed:
        return ()
    return (
        f"trial {winner.source.trial}'s controller: {winner.missed}; its target is none that was held in the study",
    )


def no_kl_words(winner: Winner) -> str:
    """Why there is no KL: only of the recommended trial was it found to be best."""
    if winner.source.read_from:
        return "no KL in the study, so no reference model"
    if winner.source.is_recommended and winner.setting.beta == 0:
        return "the study found beta = 0 best: no KL, no reference model"
    return f"trial {winner.source.trial} has beta = 0: no KL, no reference model"


def _shaping_words(winner: Winner) -> str:
    reward = winner.trainer.reward
    done = [f"z-scored ({reward.normalize})"] if reward.normalize != "none" else []
    done += [f"scaled by {number(reward.scale)}"] if reward.scale != 1 else []
    done += [f"clipped to ± {number(reward.clip)}"] if reward.clip is not None else []
    whose = (
        "beta is native, so it holds for the shaped score: shape it alike"
        if winner.beta_unit is BetaUnit.NATIVE
        else "the numbers here are for the raw proxy, as your reward function returns it"
    )
    return f"trainer.reward: the study's score was {', '.join(done)} before training; {whose}"


def updates_per_rollout(winner: Winner) -> int:
    """Optimiser updates on one rollout; with more than one the policy leaves the samples' behind."""
    return winner.trainer.epochs * winner.trainer.minibatches
