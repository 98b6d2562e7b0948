"""A run's log in, its diagnosis out: every rule asked, every sign explained. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kltune.diagnose import (
    control_rules,
    fall_rules,
    kl_rules,
    reward_rules,
    seen,
    stall_rules,
    update_rules,
)
from kltune.diagnose.causes import EXPLANATIONS, explain, in_order
from kltune.diagnose.price import coefficient
from kltune.diagnose.result import Diagnosis, Sign
from kltune.diagnose.rule import Rule
from kltune.diagnose.runlog import RunLog
from kltune.diagnose.series import level, steps_text
from kltune.grade import Grade
from kltune.symptoms.curve import Quantity

RULES: tuple[Rule, ...] = (
    *kl_rules.RULES,
    *seen.RULES,
    *reward_rules.RULES,
    *fall_rules.RULES,
    *update_rules.RULES,
    *control_rules.RULES,
)

_FOLLOWS = {
    "kl_jump": ("kl_explosion", "kl_spike"),
    "kl_limit": ("kl_explosion",),
    "gold_drop": ("kl_explosion",),
    "reward_falls": ("kl_explosion",),
    "drift_without_gain": (
        "kl_explosion",
        "reward_falls",
        "over_optimised",
        "gold_drop",
        "kl_limit",
    ),
    "proxy_spread": ("kl_stalled",),
    "beta_too_large": ("kl_stalled",),
    "gold_missing": ("kl_explosion", "drift_without_gain", "kl_suspicious", "kl_spike"),
}
"""What says nothing beside one of these: the same seen twice, or its mere consequence."""


def diagnose(run: RunLog) -> Diagnosis:
    """Ask every rule of the log; what it can't tell for lack of a quantity is said as well."""
    signs: list[tuple[Sign, str]] = []
    passed: list[str] = []
    untold: list[tuple[str, str]] = []
    is_early = False
    for rule in RULES:
        lacks = rule.lacks(run)
        if lacks:
            untold += [] if rule.is_optional else [(lacks, rule.title)]
            continue
        sign = rule.judge(run)
        if sign is not None:
            signs.append((sign, rule.title))
        elif lacks := rule.lacks_to_pass(run):
            untold.append((lacks, rule.title))
            is_early = is_early or rule.title == stall_rules.LEARNS
        else:
            passed.append(rule.title)
    steps = run.curve.steps
    return Diagnosis(
        path=run.path,
        framework=run.framework,
        kind=run.kind,
        steps=(steps[0], steps[-1]) if steps else None,
        num_steps=len(steps),
        findings=in_order(
            [explain(sign, ruled_out(run), checks) for sign, checks in _told_once(signs)]
        ),
        passed=tuple(passed),
        untold=tuple(untold),
        readings=tuple(run.readings[q] for q in Quantity if q in run.readings),
        facts=run.facts,
        notes=run.notes,
        is_early=is_early,
        restart=run.restart,
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


def _told_once(signs: list[tuple[Sign, str]]) -> list[tuple[Sign, tuple[str, ...]]]:
    """Without what another sign says already; that one answers for both, and keeps a cause that only one tells."""
    by_name: dict[str, Sign] = {}
    checks: dict[str, list[str]] = {}
    for sign, title in signs:
        by_name.setdefault(sign.name, sign)
        checks.setdefault(sign.name, []).append(title)
    told = dict(by_name)
    for name, sign in by_name.items():
        root = _root(name, by_name)
        if root == name:
            continue
        checks[root] += checks.pop(name)
        del told[name]
        parent = told[root]
        if not parent.cause and sign.cause and _knows(root, sign.cause):
            parent = replace(parent, cause=sign.cause)
        if sign.grade is not Grade.PASS:
            parent = replace(parent, detail=f"{parent.detail}; with it: {_beside(sign)}")
        told[root] = parent
    return [(sign, tuple(checks[name])) for name, sign in told.items()]


def _root(name: str, by_name: Mapping[str, Sign]) -> str:
    """The sign that speaks for this one: itself, or what it follows from as far as that was seen."""
    for parent in _FOLLOWS.get(name, ()):
        if parent in by_name:
            return _root(parent, by_name)
    return name


def _knows(name: str, cause: str) -> bool:
    return cause in {one.name for one in EXPLANATIONS[name].causes}


def _beside(sign: Sign) -> str:
    title = EXPLANATIONS[sign.name].title
    return f"{title[0].lower()}{title[1:]} ({steps_text(sign.first_step, sign.last_step)})"
