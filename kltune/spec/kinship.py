"""Two rewards of a spec in, whether one is the other's judgement again out.

Functions are compared by their code (kltune.tasks.sameness). What can be gamed must not judge itself: the same classifier, judge or file of scores is refused as proxy and gold.
A verifier (an answer, a schema, tests) can't be liked by mistake, and select prompts are others than those trained
on: it is told, and allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from kltune.spec.judge import JudgeSpec
from kltune.spec.rewards import RecordedSpec, RewardModelSpec, WinRateSpec
from kltune.spec.scorers import WeightedSpec
from kltune.spec.verifiers import CodeVerifierSpec, JsonVerifierSpec, MathVerifierSpec

Kinship = Literal["same", "kin", "check"]
"""``same``: refused; ``kin``: the same model, asked otherwise; ``check``: the same verifier."""

Spelled = Callable[[str], str]
"""One spelling for every way to write a path."""


def kinship(one: object, other: object, spelled: Spelled = str) -> Kinship | None:
    """How two rewards that are no functions go together; none: they don't."""
    if isinstance(one, WinRateSpec) and isinstance(other, WinRateSpec):
        by = kinship(one.win_rate.by, other.win_rate.by, spelled)
        files = {spelled(one.win_rate.reference), spelled(other.win_rate.reference)}
        return by if by is None or len(files) == 1 else "kin"
    for first, second in ((one, other), (other, one)):
        if isinstance(first, WinRateSpec):
            by = kinship(first.win_rate.by, second, spelled)
            # A model's win rate rises with its score; a judge compares by another question than it rates by.
            return by if by is None or isinstance(second, RewardModelSpec) else "kin"
    return _plain(one, other, spelled)


def _plain(one: object, other: object, spelled: Spelled) -> Kinship | None:
    match one, other:
        case RewardModelSpec(), RewardModelSpec():
            if spelled(one.model) != spelled(other.model):
                return None
            is_same = (one.label, one.sees) == (other.label, other.sees)
            return "same" if is_same else "kin"
        case JudgeSpec(), JudgeSpec():
            if one.judge != other.judge:
                return None
            return "same" if (one.ask, one.system) == (other.ask, other.system) else "kin"
        case RecordedSpec(), RecordedSpec():
            places = {(spelled(r.recorded), r.score) for r in (one, other)}
            return "same" if len(places) == 1 else None
        case _:
            return "check" if _is_same_check(one, other) else None


def _is_same_check(one: object, other: object) -> bool:
    match one, other:
        case MathVerifierSpec(), MathVerifierSpec():
            return (one.answer, one.answer_after) == (other.answer, other.answer_after)
        case JsonVerifierSpec(), JsonVerifierSpec():
            schemas = {(r.schema_file, r.schema_column) for r in (one, other)}
            return len(schemas) == 1
        case CodeVerifierSpec(), CodeVerifierSpec():
            return one.tests == other.tests
        case _:
            return False


def checked_again(proxy: object, golds: Mapping[str, object]) -> frozenset[str]:
    """Golds, by field, that are the proxy's own verifier: they agree with it on any completion, knowingly."""
    return frozenset(field for field, gold in golds.items() if kinship(proxy, gold) == "check")


def leaves(field: str, reward: object) -> Iterator[tuple[str, object]]:
    """A reward, or the parts of a weighted one, with the field of each."""
    if not isinstance(reward, WeightedSpec):
        yield field, reward
        return
    for i, part in enumerate(reward.weighted):
        yield from leaves(f"{field}.weighted.{i}", part.reward)


def same_problem(field: str, other: str) -> str:
    """Why proxy and gold can't be one judgement, and what to do."""
    return (
        f"{field} and {other} are the same judgement; gold must be one that training never sees: give another "
        "model, judge or question, or proxy: {learned: {from: gold}}"
    )


def kin_doubt(kind: Kinship, other: str) -> str:
    """What to think of the rest."""
    if kind == "kin":
        return (
            f"{other} is the same model, asked otherwise: what fools it as proxy may fool it as gold, so gold may not fall "
            "where it should"
        )
    return (
        f"{other} is the same check: gold differs by its prompts alone, so it can't show that the check is gamed; add "
        "another judgement by task.golds"
    )
