"""What a sign may come from, and what to do first: the name of a sign in, its explanation out.

After the symptom tables of the articles that kl-reference §6.2 lists (items 22-26, 57-59, 69, 78-81), with
their mistakes mended: a KL that is too small calls for a lower beta or a higher target, not a lower one; a
KL causes no lack of memory; a wider clip range does not calm a policy; a reward that soars at a tiny KL is
first of all a metric to check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kltune.diagnose.cause_list import (
    ADVANTAGES_ZERO,
    AGAINST_REWARD,
    BETA_TOO_LARGE,
    BETA_TOO_SMALL,
    BETA_ZERO,
    CLIPPING,
    CONTROLLER_BOUND_HIGH,
    CONTROLLER_BOUND_LOW,
    CRITIC_LATE,
    DETERMINISTIC,
    ENGINE,
    ENTROPY_BONUS,
    FORMAT_CHANGED,
    HORIZON_TOO_LONG,
    KL_ELSEWHERE,
    KL_METRIC_WRONG,
    LEARNING_RATE_TOO_HIGH,
    LEARNING_RATE_TOO_LOW,
    LENGTH_LIMIT,
    LENGTH_PAID,
    MASK,
    NO_GOLD,
    NO_SPREAD,
    NORMALISATION,
    NOT_LOGGED,
    NUMERICS,
    ONE_BATCH,
    OUTLIER_TOKENS,
    PROXY_EXPLOITED,
    RARE_TOKENS,
    REFERENCE_OTHER,
    REWARD_NOISE,
    REWARD_SCALE,
    REWARD_SOLVED,
    SAMPLING,
    SET_UP,
    SHORT_PAID,
    STALE,
    TEXT_LOGGED,
    TOO_LONG,
    UNIT_NOT_SAID,
    UPDATE_KL_ONLY,
    WRONG_ESTIMATOR,
)
from kltune.diagnose.result import Cause, Finding, Sign
from kltune.grade import Grade


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known of a sign."""

    title: str
    causes: tuple[Cause, ...]
    """In the order in which to look, where the numbers speak for none."""


EXPLANATIONS: Mapping[str, Explanation] = MappingProxyType(
    {
        # The order is that of the page among findings of one grade: what explains others comes first.
        "non_finite": Explanation(
            "Numbers that are not finite", (NUMERICS, LEARNING_RATE_TOO_HIGH, MASK)
        ),
        "impossible_kl": Explanation(
            "A KL below zero where none can be", (WRONG_ESTIMATOR, MASK, KL_METRIC_WRONG)
        ),
        "negative_kl": Explanation(
            "The mean log-ratio is clearly negative", (SAMPLING, MASK, REFERENCE_OTHER, ENGINE)
        ),
        "start_kl": Explanation(
            "The policy does not start at its reference", (SET_UP, REFERENCE_OTHER, ENGINE, MASK)
        ),
        "kl_suspicious": Explanation(
            "The reward soars at a tiny KL: check the metric first",
            (KL_METRIC_WRONG, MASK, NOT_LOGGED),
        ),
        "over_optimised": Explanation(
            "The proxy rises and gold falls: over-optimisation",
            (PROXY_EXPLOITED, TOO_LONG, BETA_TOO_SMALL),
        ),
        "kl_explosion": Explanation(
            "The KL exploded", (SET_UP, MASK, LEARNING_RATE_TOO_HIGH, BETA_TOO_SMALL)
        ),
        "kl_spike": Explanation(
            "The KL ran away and came back", (ONE_BATCH, LEARNING_RATE_TOO_HIGH, NUMERICS)
        ),
        "reward_falls_at_reference": Explanation(
            "The reward falls while the log has the policy at its reference",
            (KL_METRIC_WRONG, REWARD_NOISE, MASK),
        ),
        "kl_jump": Explanation(
            "The KL jumped within a step", (LEARNING_RATE_TOO_HIGH, MASK, NUMERICS)
        ),
        "kl_limit": Explanation(
            "The KL went over its limit", (BETA_TOO_SMALL, LEARNING_RATE_TOO_HIGH, TOO_LONG)
        ),
        "pseudo_explosion": Explanation(
            "KL and advantages grow together", (NORMALISATION, LEARNING_RATE_TOO_HIGH, CLIPPING)
        ),
        "proxy_spread": Explanation(
            "The spread of the reward vanished", (NO_SPREAD, REWARD_SOLVED)
        ),
        "beta_too_large": Explanation(
            "Beta holds the policy where it is", (BETA_TOO_LARGE, REWARD_SCALE)
        ),
        "kl_stalled": Explanation(
            "Nothing is learned: the KL stays near 0 and the reward flat",
            (BETA_TOO_LARGE, NO_SPREAD, ADVANTAGES_ZERO, LEARNING_RATE_TOO_LOW),
        ),
        "penalty_dwarfs_reward": Explanation(
            "The penalty dwarfs the reward", (REWARD_SCALE, BETA_TOO_LARGE)
        ),
        "gold_drop": Explanation("Gold fell", (LEARNING_RATE_TOO_HIGH, PROXY_EXPLOITED, TOO_LONG)),
        "reference_kl_missing": Explanation(
            "No KL to the reference is logged", (NOT_LOGGED, BETA_ZERO, UPDATE_KL_ONLY)
        ),
        "reward_falls": Explanation(
            "The training reward falls",
            (LEARNING_RATE_TOO_HIGH, AGAINST_REWARD, REWARD_NOISE, TOO_LONG),
        ),
        "kl_unit_unknown": Explanation("The KL's unit is not known", (UNIT_NOT_SAID,)),
        "kl_not_a_number": Explanation("The KL in the log is no number", (TEXT_LOGGED,)),
        "drift_without_gain": Explanation(
            "The KL grows and buys nothing",
            (PROXY_EXPLOITED, LEARNING_RATE_TOO_HIGH, BETA_TOO_SMALL),
        ),
        "entropy_collapse": Explanation(
            "The entropy collapsed", (PROXY_EXPLOITED, LEARNING_RATE_TOO_HIGH, ENTROPY_BONUS)
        ),
        "entropy_low": Explanation(
            "The policy has no entropy", (DETERMINISTIC, SAMPLING, NO_SPREAD)
        ),
        "gradient_explosion": Explanation(
            "The gradient norm explodes", (LEARNING_RATE_TOO_HIGH, NUMERICS, NORMALISATION)
        ),
        "clipped_updates": Explanation(
            "Most ratios are clipped", (ENGINE, LEARNING_RATE_TOO_HIGH, STALE)
        ),
        "repetition": Explanation(
            "The completions repeat themselves", (PROXY_EXPLOITED, BETA_TOO_SMALL)
        ),
        "length_growth": Explanation("The completions grow", (LENGTH_PAID, FORMAT_CHANGED)),
        "length_collapse": Explanation("The completions shrink", (SHORT_PAID, FORMAT_CHANGED)),
        "truncation": Explanation("Many completions are cut", (LENGTH_LIMIT, LENGTH_PAID)),
        "local_kl": Explanation("A few tokens hold the KL", (OUTLIER_TOKENS, RARE_TOKENS, MASK)),
        "sampler_mismatch": Explanation("Sampler and trainer disagree", (ENGINE, SAMPLING)),
        "large_updates": Explanation(
            "Single updates move the policy far", (LEARNING_RATE_TOO_HIGH, CLIPPING)
        ),
        "reward_swings": Explanation("The reward swings", (REWARD_NOISE, LEARNING_RATE_TOO_HIGH)),
        "controller_inert": Explanation(
            "The controller does not move beta", (HORIZON_TOO_LONG, KL_ELSEWHERE)
        ),
        "controller_saturated": Explanation(
            "The controller is at its bound",
            (CONTROLLER_BOUND_HIGH, CONTROLLER_BOUND_LOW, REWARD_SCALE),
        ),
        "critic": Explanation("The critic knows less than a constant", (CRITIC_LATE, REWARD_SCALE)),
        "gold_missing": Explanation("Progress can't be told from over-optimisation", (NO_GOLD,)),
    }
)
"""Every sign that a rule can give, by its name."""

_PLACES: Mapping[str, int] = MappingProxyType({name: i for i, name in enumerate(EXPLANATIONS)})
_GRADES = (Grade.FAIL, Grade.WARN, Grade.PASS)


def explain(
    sign: Sign, ruled_out: frozenset[str] = frozenset(), checks: tuple[str, ...] = ()
) -> Finding:
    """The sign with title and causes: first the one that its numbers speak for, without those that the log rules out.

    ``checks``: titles of the rules that it answers.
    """
    known = EXPLANATIONS[sign.name]
    told = [cause for cause in known.causes if cause.name == sign.cause]
    rest = [cause for cause in known.causes if cause.name not in {sign.cause, *ruled_out}]
    return Finding(sign, known.title, (*told, *rest), checks)


def in_order(findings: list[Finding]) -> tuple[Finding, ...]:
    """The worst first; of one grade, what explains others first."""
    return tuple(
        sorted(findings, key=lambda one: (_GRADES.index(one.sign.grade), _PLACES[one.sign.name]))
    )
