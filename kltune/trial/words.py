"""Numbers and settings in, short text for people out: every unit is named."""

from __future__ import annotations

import math

from kltune.spec.algorithm import Credit
from kltune.spec.objective import ObjectiveSpec
from kltune.spec.penalty import Penalty
from kltune.spec.recipes import RECIPES
from kltune.spec.trial import BetaUnit, ControllerKind, KLUnit, TrialSpec

KL_UNIT: dict[KLUnit, str] = {KLUnit.TOKEN: "nats/token", KLUnit.SEQUENCE: "nats/sequence"}
BETA_UNIT: dict[BetaUnit, str] = {
    BetaUnit.REWARD: "reward per nat of sequence KL",
    BetaUnit.NATIVE: "native coefficient",
}
BETA_UNIT_OF_MEAN = "reward per nat per token of mean KL"
"""beta in reward units where the reward pays the completion's mean (kl.credit length-mean)."""
MISSING = "–"


def number(value: float | None, digits: int = 3) -> str:
    """A number with up to ``digits`` significant digits; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 10**6:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}"


def score(value: float | None, se: float | None = None) -> str:
    """A gold or proxy score with two to three decimals, and its standard error where given."""
    if value is None or not math.isfinite(value):
        return MISSING
    decimals = 3 if abs(value) < 10 else 1
    if se is None or not math.isfinite(se):
        return f"{value:z.{decimals}f}"
    return f"{value:z.{decimals}f} ± {se:.{decimals}f}"


def both_units(kl_token: float | None, kl_seq: float | None) -> str:
    """A KL in nats per token and per sequence: the two always travel together."""
    return f"{number(kl_token)} nats/token = {number(kl_seq)} nats/sequence"


def beta_unit_words(unit: BetaUnit, credit: Credit = "sequence", *penalties: Penalty | None) -> str:
    """The unit of beta under these penalties; of any penalty where none is given."""
    per_sequence = BETA_UNIT[unit]
    if unit is BetaUnit.NATIVE or credit != "length-mean":
        return per_sequence
    places = {penalty.in_reward for penalty in penalties if penalty is not None}
    if places == {False}:
        return per_sequence  # the loss does not know of credit
    if places == {True}:
        return BETA_UNIT_OF_MEAN
    return f"{BETA_UNIT_OF_MEAN} (in the loss: {per_sequence})"


def count_words(count: int, thing: str) -> str:
    """``1 trial``, ``2 trials``."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def duration(seconds: float | None) -> str:
    """Seconds as ``42 s``, ``3 min 05 s`` or ``2 h 10 min``."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def setting_short(setting: TrialSpec, kl_unit: KLUnit) -> str:
    """One setting on one line, e.g. ``k2-loss 0.12 → 0.05/token h 640``; beta is in the study's beta unit."""
    if setting.beta == 0:
        return "no KL (beta 0)"
    penalty = "" if setting.penalty is None else setting.penalty.value
    text = f"{penalty} {number(setting.beta)}"
    kind, target = setting.controller, setting.target_kl
    if kind.has_target:
        text += " → measured" if target is None else f" → {number(target)}/{kl_unit.value[:3]}"
    if kind is ControllerKind.PROPORTIONAL:
        return f"{text} h {number(setting.horizon)}"
    return text if kind is ControllerKind.FIXED else f"{text} {kind.value}"


def setting_long(
    setting: TrialSpec, beta_unit: BetaUnit, kl_unit: KLUnit, credit: Credit = "sequence"
) -> str:
    """One setting in full, with units."""
    if setting.beta == 0:
        text = "beta = 0 (no KL penalty)"
    else:
        penalty = "" if setting.penalty is None else setting.penalty.value
        text = f"{penalty}, beta {number(setting.beta)} {beta_unit_words(beta_unit, credit, setting.penalty)}"
        text += f", {setting.controller.value}"
        if setting.controller.has_target:
            target = setting.target_kl
            text += (
                " to a target measured in the warm-up"
                if target is None
                else f" to target {number(target)} {KL_UNIT[kl_unit]}"
            )
        if setting.controller is ControllerKind.PROPORTIONAL:
            text += f" with horizon {number(setting.horizon)} sequences"
    return f"{text}, learning rate {number(setting.learning_rate)}"


def limit_words(objective: ObjectiveSpec) -> str:
    """What a checkpoint must respect: ``the KL limit``, or ``the limits on KL and retention``."""
    names = [*(["KL"] if objective.kl_limit is not None else []), *objective.gold_limits]
    if names in ([], ["KL"]):
        return "the KL limit"
    listed = " and ".join([*([", ".join(names[:-1])] if names[:-1] else []), names[-1]])
    return f"the limit{'s' if names[1:] else ''} on {listed}"


NOISE = "noise:"
"""Start of the origin of a trial that repeats another one's setting on a seed of its own."""


def is_noise(origin: str) -> bool:
    """Whether a trial only measures the noise floor: it is no setting of its own."""
    return origin.startswith(NOISE)


def origin_words(origin: str) -> str:
    """Where a setting came from, for people: a recipe's name, the beta = 0 arm, or who proposed it."""
    kind, _, name = origin.partition(":")
    if kind == "baseline" and name:
        return f"recipe {name}" if name in RECIPES else f"baseline {name}"
    if is_noise(origin):
        return f"repeat on seed {name}, for the noise floor"
    words = {
        "zero": "beta = 0 arm",
        "fixed": "fixed (recipes and beta = 0)",
        "noise": "repeats on other seeds, for the noise floor",
        "sobol": "Sobol point",
        "guided": "guided by the sampler",
        "tpe": "proposed by TPE",
    }
    return words.get(origin, origin)
