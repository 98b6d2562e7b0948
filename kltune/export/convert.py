"""A setting and a target in, its numbers in the target's units out, each with the words that say where it comes from.

Gradient classes, aggregations and units: kl-reference.md §3.2-3.4. What a policy is drawn to
depends on reward / price alone, so the price of a nat is what every conversion keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kltune.errors import SpecError
from kltune.export.key import rounded
from kltune.export.setting import Winner
from kltune.export.target import Target
from kltune.spec.penalty import Penalty
from kltune.spec.trial import BetaUnit, ControllerKind, KLUnit
from kltune.trial.words import number
from kltune.units import kl_per_sequence, kl_per_token

_CLAMP: Final = 10.0
"""Nats of a token: verl's (k3 only) and OpenRLHF's."""


class Gradient(StrEnum):
    """What a penalty's expected gradient is; the framework must be set to one of the same class."""

    NONE = "no KL penalty"
    FULL = "reverse KL of the whole sequence"
    LOCAL = "reverse KL, token-local"
    FORWARD = "forward KL, token-local"
    OTHER = "none of these"


def gradient_of(penalty: Penalty | None) -> Gradient:
    """The class of a penalty."""
    if penalty is None:
        return Gradient.NONE
    words = penalty.nature.gradient
    return Gradient(words) if words in {g.value for g in Gradient} else Gradient.OTHER


def gradient(winner: Winner) -> Gradient:
    """The class of a setting; beta = 0 has none."""
    return Gradient.NONE if winner.setting.beta == 0 else gradient_of(winner.setting.penalty)


@dataclass(frozen=True, slots=True)
class Number:
    """A value and where it comes from."""

    value: float
    words: str


def price(winner: Winner, target: Target, beta: float) -> Number:
    """Raw reward per nat of sequence KL, for a KL in the reward.

    Raises:
        SpecError: the scale of a native coefficient is not on record.
    """
    found = winner.price(beta)
    if found is None:
        raise SpecError(_no_scale(winner))
    words = f"beta {number(beta)} of the study"
    if winner.beta_unit is BetaUnit.NATIVE and found != beta:
        words += f" x {number(winner.scale or found / beta)}, back to raw reward"
    penalty = winner.setting.penalty
    if penalty is not None and penalty.in_reward and winner.trainer.credit == "length-mean":
        found /= target.mean_tokens
        words += f" per nat per token of mean KL / {number(target.mean_tokens)} tokens"
    return Number(rounded(found), f"{words}: raw proxy reward per nat of sequence KL")


def coefficient(
    winner: Winner, target: Target, beta: float, *, keeps_own: bool | None = None
) -> Number:
    """Factor of a KL in the loss, beside advantages that are divided as the study's were.

    ``keeps_own``: the target's undivided baseline holds a completion's own reward (Dr.GRPO's
    group mean), so (G - 1) / G of the reward's gradient is left; None: as the algorithm's own.

    Raises:
        SpecError: the scale is not on record.
    """
    trainer = winner.trainer
    own = trainer.algorithm == "dr-grpo" if keeps_own is None else keeps_own
    is_plain = winner.beta_unit is BetaUnit.NATIVE and not _in_reward(winner)
    if winner.is_divided and is_plain:
        return Number(rounded(beta), f"beta {number(beta)} as it stands: advantage units per nat")
    if winner.is_divided and winner.scale is None:
        found = winner.coefficient(beta)
        if found is None:
            raise SpecError(_no_scale(winner))
        return Number(
            rounded(found), f"beta {number(beta)}, by the coefficient that the trial recorded"
        )
    base = price(winner, target, beta)
    if winner.is_divided:
        assert winner.scale is not None, "asked above"
        symbol = "sigma_R" if trainer.algorithm == "grpo" else "std_R"
        words = f"{_head(base)} / {symbol} {number(winner.scale)}: advantage units per nat"
        return Number(rounded(base.value / winner.scale), words)
    share = (target.group - 1) / target.group if own else 1.0
    words = _head(base)
    if share != 1:
        words += f" x (G - 1) / G, G = {target.group}"
    return Number(rounded(share * base.value), f"{words}: beside undivided advantages")


def is_wider(winner: Winner) -> bool:
    """Whether a token's KL could pass the ±10 nats to which verl and OpenRLHF clamp it."""
    clip = winner.trainer.kl.clip
    return clip is None or clip > _CLAMP


def target_per_token(winner: Winner, target: Target) -> Number | None:
    """Set point of the controller in nats per token, by the target's mean length; None: there is none."""
    found = winner.measured.target_kl
    if found is None:
        return None
    if winner.kl_unit is KLUnit.TOKEN:
        return Number(rounded(found), f"{number(found)} nats/token{_measured(winner)}")
    value = kl_per_token(found, target.mean_tokens)
    words = (
        f"{number(found)} nats/sequence / {number(target.mean_tokens)} tokens{_measured(winner)}"
    )
    return Number(rounded(value), f"{words}: nats/token")


def target_per_sequence(winner: Winner, target: Target) -> Number | None:
    """The same in nats per sequence."""
    found = winner.measured.target_kl
    if found is None:
        return None
    if winner.kl_unit is KLUnit.SEQUENCE:
        return Number(rounded(found), f"{number(found)} nats/sequence{_measured(winner)}")
    value = kl_per_sequence(found, target.mean_tokens)
    words = f"{number(found)} nats/token x {number(target.mean_tokens)} tokens{_measured(winner)}"
    return Number(rounded(value), f"{words}: nats/sequence")


def horizon(winner: Winner, target: Target) -> Number:
    """Time constant in sequences: the same gain per step with the target's completions per step."""
    source = winner.setting.horizon
    assert source is not None, "a proportional controller has a horizon"
    rows = winner.trainer.rows
    value = source * target.batch / rows
    words = f"{number(source)} sequences"
    if target.batch != rows:
        words += f" x {target.batch} / {rows} completions per step"
    return Number(rounded(value), f"{words}: gain {number(rows / source)} per step")


@dataclass(frozen=True, slots=True)
class Held:
    """How beta is to move in the target."""

    beta: float
    """At the start, in beta_unit; where nothing moves it, the one to hold."""
    is_adaptive: bool
    words: str
    """For the comment of the coefficient."""
    warnings: tuple[str, ...] = ()


def held(winner: Winner, *, framework: str, why_not: str | None) -> Held:
    """Keep the proportional controller where the target has one, else hold the beta it ended at.

    ``why_not``: why the target can't move this coefficient; None: it can.
    """
    setting, kind = winner.setting, winner.setting.controller
    if setting.beta == 0 or kind is ControllerKind.FIXED:
        return Held(setting.beta, False, "held fixed, as in the study")
    if kind is ControllerKind.PROPORTIONAL and why_not is None and winner.measured.target_kl:
        return Held(
            setting.beta, True, "at the start; the controller moves it", _dropped(winner, framework)
        )
    if why_not is None or kind is not ControllerKind.PROPORTIONAL:
        why_not = f"{framework} has no controller of the kind {kind.value}"
    window = winner.measured.window
    if window is None:
        words = "start value of the study: what it became is not on record"
    else:
        words = f"median of the study's steps {window[0]} to {window[1]}"
    text = (
        f"{why_not}, so beta is held at {number(winner.final_beta)}, the {words} (it started at "
        f"{number(setting.beta)}, controller {kind.value}). A held beta is not what was studied: watch the KL"
    )
    return Held(winner.final_beta, False, words, (text,))


def _dropped(winner: Winner, framework: str) -> tuple[str, ...]:
    """Options of the controller that no other framework has."""
    control = winner.control
    found = [
        name
        for name, is_on in (
            ("ema", control.ema != 0),
            ("beta_min", control.beta_min is not None),
            ("beta_max", control.beta_max is not None),
            ("targets", any(factor != 1 for _, factor in control.targets)),
            ("calibrate", control.calibrate is not None and winner.setting.target_kl is None),
        )
        if is_on
    ]
    if not found:
        return ()
    return (
        f"control.{', control.'.join(found)}: {framework}'s controller has no such thing; the plain one is exported",
    )


def _head(base: Number) -> str:
    """Where a price comes from, without its unit."""
    return base.words.split(":")[0]


def _measured(winner: Winner) -> str:
    return "" if winner.setting.target_kl is not None else " (measured in the trial's warm-up)"


def _in_reward(winner: Winner) -> bool:
    penalty = winner.setting.penalty
    return penalty is not None and penalty.in_reward


def _no_scale(winner: Winner) -> str:
    if winner.source.read_from:
        return "--sigma: needed"
    name = "sigma_r" if winner.trainer.algorithm == "grpo" else "std_r"
    return (
        f"{winner.source.study}: {name} of the reference is not on record (reference.json), so beta can't be "
        "brought into advantage units; run the sweep again with this kltune, or take a trial whose KL is paid in "
        "the reward"
    )
