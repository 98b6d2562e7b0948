"""The proxy's spread and a spec in; whether any beta of the search can matter and none must smother out, as a line."""

from __future__ import annotations

from dataclasses import dataclass

from kltune import units
from kltune.check import thresholds as limit
from kltune.check.result import Line
from kltune.grade import Grade
from kltune.spec.penalty import Penalty
from kltune.spec.study import StudySpec
from kltune.spec.trial import BetaUnit, KLUnit
from kltune.trial.words import KL_UNIT, number

_TITLE = "beta is of the reward's scale"


@dataclass(frozen=True, slots=True)
class Spread:
    """The proxy under the reference."""

    sigma: float
    """Mean standard deviation within a prompt, raw proxy reward."""
    std: float
    """Over all completions."""
    mean_tokens: float
    """Of a completion."""


def reward_scale_line(spread: Spread | None, spec: StudySpec) -> Line:
    """Mean penalty at the KL that the spec allows, over the proxy's spread within a prompt.

    At the smallest beta above 0 it shows whether every penalty dwarfs the reward, at the largest
    whether none can be felt. ``spread``: none where the proxy failed.
    """
    if spread is None:
        said = "Can't be told: the proxy gave no scores."
        return Line("reward_scale", _TITLE, Grade.WARN, said, "Mend the proxy first.")
    if not spread.sigma > 0:
        said = "The proxy gives every completion of a prompt the same score under the reference (sigma_R = 0)."
        remedy = (
            "No policy gradient could arise: give a proxy that tells completions of a prompt apart."
        )
        return Line("reward_scale", _TITLE, Grade.FAIL, said, remedy, {"sigma_r": spread.sigma})
    betas = [beta for beta in spec.search.beta.numbers() if beta > 0]
    numbers: dict[str, float | None] = {"sigma_r": spread.sigma, "std_r": spread.std}
    if not betas:
        said = (
            f"sigma_R {number(spread.sigma)} raw proxy reward; beta is 0 in every searched trial."
        )
        return Line("reward_scale", _TITLE, Grade.PASS, said, "", numbers)
    kl_seq, where = kl_of_interest(spec, spread.mean_tokens)
    low, high = (rewards(beta, spec, spread) for beta in (min(betas), max(betas)))
    ratios = (low[0] * kl_seq / spread.sigma, high[1] * kl_seq / spread.sigma)
    numbers |= {
        "kl_seq": kl_seq,
        "penalty_least": low[0] * kl_seq,
        "penalty_most": high[1] * kl_seq,
        "ratio_least": ratios[0],
        "ratio_most": ratios[1],
    }
    shown = (
        f"sigma_R {number(spread.sigma)} raw proxy reward; the penalty of {number(kl_seq)} nats/sequence ({where}) is "
        f"{number(ratios[0])} times that at beta {number(min(betas))}"
    )
    if max(betas) > min(betas):
        shown += f" and {number(ratios[1])} times at beta {number(max(betas))}"
    if ratios[0] >= limit.PENALTY_WARN:
        remedy = (
            "The policy can't leave the reference: nothing is learned. Search betas of about sigma_R / KL, or scale "
            "the reward up."
        )
        return Line("reward_scale", _TITLE, Grade.WARN, f"{shown}: it dwarfs it.", remedy, numbers)
    if ratios[1] <= limit.PENALTY_IDLE:
        remedy = "No beta of the search is felt: search larger ones."
        return Line("reward_scale", _TITLE, Grade.WARN, f"{shown}.", remedy, numbers)
    return Line("reward_scale", _TITLE, Grade.PASS, f"{shown}.", "", numbers)


def rewards(beta: float, spec: StudySpec, spread: Spread) -> tuple[float, float]:
    """Least and most raw proxy reward that a nat of sequence KL costs at ``beta``, over the penalties of the search."""
    if spec.beta_unit is BetaUnit.REWARD:
        return beta, beta
    trainer = spec.trainer
    critic = trainer.value_function
    divisor = units.advantage_scale(
        trainer.algorithm, spread.sigma, spread.std, is_whitened=critic is None or critic.whiten
    )
    costs = [
        beta
        if Penalty(str(value)).in_reward
        else units.beta_of_coefficient(beta, BetaUnit.REWARD.value, divisor)
        for value in spec.search.penalty.values()
    ]
    return min(costs), max(costs)


def kl_of_interest(spec: StudySpec, mean_tokens: float) -> tuple[float, str]:
    """The largest KL that the spec lets a trial have, nats per sequence, and where it says so; 1 where it does not."""
    guard, target = spec.kl_guard, spec.search.target_kl
    given = (
        (spec.objective.kl_limit, "objective.kl_limit"),
        (None if guard is None else guard.limit, "guards.kl.limit"),
        (None if target is None else target.largest(), "search.target_kl"),
    )
    for value, name in given:
        if value is not None:
            in_sequence = (
                value
                if spec.kl_unit is KLUnit.SEQUENCE
                else units.kl_per_sequence(value, mean_tokens)
            )
            unit = (
                "" if spec.kl_unit is KLUnit.SEQUENCE else f" of {value:g} {KL_UNIT[spec.kl_unit]}"
            )
            return in_sequence, f"{name}{unit}"
    return 1.0, "one nat, since the spec has no limit"


def kl_in_tokens(spec: StudySpec, mean_tokens: float) -> tuple[float | None, float | None]:
    """The smallest KL limit or target of the spec, and the KL at which a trial is stopped, nats per token."""
    guard, target = spec.kl_guard, spec.search.target_kl
    stops = [
        value
        for value in (None if guard is None else guard.limit, spec.objective.kl_limit)
        if value is not None
    ]
    smallest = None if target is None else target.smallest()
    given = [*stops, *([] if smallest is None else [smallest])]

    def tokens(value: float) -> float:
        is_token = spec.kl_unit is KLUnit.TOKEN
        return value if is_token else units.kl_per_token(value, mean_tokens)

    return (tokens(min(given)) if given else None, tokens(max(stops)) if stops else None)
