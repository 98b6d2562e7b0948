"""A run's log in, its diagnosis out: every rule asked, every sign explained. Pure."""

from __future__ import annotations

from dataclasses import replace

from kltune.diagnose import control_rules, kl_rules, reward_rules, seen
from kltune.diagnose.causes import explain, in_order
from kltune.diagnose.price import coefficient
from kltune.diagnose.result import Diagnosis, Sign
from kltune.diagnose.rule import Rule
from kltune.diagnose.runlog import RunLog
from kltune.diagnose.series import level
from kltune.symptoms.curve import Quantity

RULES: tuple[Rule, ...] = (
    *kl_rules.RULES,
    *seen.RULES,
    *reward_rules.RULES,
    *control_rules.RULES,
)

_FOLLOWS = {
    "kl_jump": ("kl_explosion",),
    "kl_limit": ("kl_explosion",),
    "gold_drop": ("kl_explosion",),
    "drift_without_gain": ("kl_explosion", "over_optimised", "gold_drop", "kl_limit"),
    "proxy_spread": ("kl_stalled",),
    "beta_too_large": ("kl_stalled",),
    "gold_missing": ("kl_explosion", "drift_without_gain", "kl_suspicious"),
}
"""What says nothing beside one of these: the same seen twice, or its mere consequence."""


def diagnose(run: RunLog) -> Diagnosis:
    """Ask every rule of the log; what it can't tell for lack of a quantity is said as well."""
    signs: list[Sign] = []
    passed: list[str] = []
    untold: list[tuple[str, str]] = []
    for rule in RULES:
        lacks = rule.lacks(run)
        if lacks:
            untold += [] if rule.is_optional else [(lacks, rule.title)]
            continue
        sign = rule.judge(run)
        if sign is None:
            passed.append(rule.title)
        else:
            signs.append(sign)
    steps = run.curve.steps
    return Diagnosis(
        path=run.path,
        framework=run.framework,
        kind=run.kind,
        steps=(steps[0], steps[-1]) if steps else None,
        num_steps=len(steps),
        findings=in_order([explain(sign, ruled_out(run)) for sign in _told_once(signs)]),
        passed=tuple(passed),
        untold=tuple(untold),
        readings=tuple(run.readings[q] for q in Quantity if q in run.readings),
        facts=run.facts,
        notes=run.notes,
    )


def ruled_out(run: RunLog) -> frozenset[str]:
    """Causes that the log's own numbers speak against."""
    found: set[str] = set()
    start = kl_rules.kl_of(run)
    if start is not None and start[1][0][0] <= 1 and kl_rules.far_at_start(run) is None:
        found |= {"set_up", "reference_is_another_model"}
    equal = run.curve.known(Quantity.ZERO_GROUPS)
    spread = run.curve.known(Quantity.PROXY_STD)
    if equal and level(equal) < 0.5 and spread and level(spread) > 0:
        found.add("no_group_spread")
    advantages = run.curve.known(Quantity.ADVANTAGE_STD)
    if advantages and level(advantages) > 0:
        found.add("zero_advantages")
    beta = coefficient(run)
    if beta is not None and beta.value > 0:
        found.add("beta_zero")
    return frozenset(found)


def _told_once(signs: list[Sign]) -> list[Sign]:
    """Without what another sign says already; a cause that only one of two tells is kept."""
    by_name = {sign.name: sign for sign in signs}
    kept: dict[str, Sign] = dict(by_name)
    for sign in signs:
        parents = [name for name in _FOLLOWS.get(sign.name, ()) if name in by_name]
        if not parents:
            continue
        kept.pop(sign.name)
        for name in parents:
            parent = kept.get(name)
            if parent is not None and not parent.cause and sign.cause:
                kept[name] = replace(parent, cause=sign.cause)
    return list(kept.values())
