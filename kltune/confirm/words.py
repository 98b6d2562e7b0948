"""A confirmation in, sentences that need no statistics out: what to use, by how much, how sure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from kltune.confirm.design import Arm
from kltune.confirm.result import ArmFacts, ConfirmResult, Judgement
from kltune.spec.trial import KLUnit
from kltune.trial.words import origin_words, score, setting_short

METHOD = (
    "Every setting was trained anew on the same fresh seeds up to its own stop, and judged on test prompts that the "
    "search never saw. A difference's interval covers new seeds and new prompts, both taken as drawn at "
    "random (seed x setting x prompt layout; variance pooled over the settings, or the pair's own where that is "
    "larger; Satterthwaite degrees of freedom), and all of them hold at once in 95 of 100 repetitions "
    "(Dunnett). The known recipes were given the stop that was best for them in the study, which is generous to them."
)


def arm_name(arm: Arm, unit: KLUnit) -> str:
    """How tables call a setting."""
    if arm.role == "start":
        return "untrained start"
    what = setting_short(arm.setting, unit)
    if arm.origin == "zero":
        return f"trial {arm.number}: {what}"
    if arm.origin.startswith("baseline:"):
        return f"trial {arm.number}: {origin_words(arm.origin)} ({what})"
    return f"trial {arm.number}: {what}"


def headline(result: ConfirmResult) -> str:
    """The verdict in one sentence or two."""
    return verdict_sentence(result.main, _on(result))


def verdict_sentence(judged: Judgement, where: str) -> str:
    """What one gold says about the recommended setting."""
    name = judged.names[0]
    trained = [a for a in judged.against if a.role != "start"]
    worse = [a for a in trained if a.is_told_apart and a.difference > 0]
    tied = [a for a in trained if not a.is_told_apart]
    if judged.verdict == "changes":
        new = next(a for a in trained if a.arm == judged.winner)
        return (
            f"The winner changes to {judged.names[judged.winner]}: {where}, its gold is {-new.difference:.3f} above that of "
            f"{name} (95 % interval {-new.high:+.3f} to {-new.low:+.3f})."
        )
    if judged.verdict == "stays":
        return f"The winner stays: {where}, {name} is better than every other setting here."
    text = f"Tied: {where}, {name} can't be told apart from {_listed([judged.names[a.arm] for a in tied])}."
    if worse:
        text += f" It is better than {_listed([judged.names[a.arm] for a in worse])}."
    return text


def recipe_words(result: ConfirmResult) -> str | None:
    """The recommended setting against the best known recipe; none where none ran."""
    best = result.main.best_baseline
    if best is None:
        return None
    told = "told apart" if best.is_told_apart else "can't be told apart"
    return (
        f"{best.difference:+.3f} gold (95 % interval {best.low:+.3f} to {best.high:+.3f}; {told}) against "
        f"{result.main.names[best.arm]}, on test the best of the known recipes and beta = 0"
    )


def luck_words(result: ConfirmResult) -> str | None:
    """How much of the search's figure was luck: gain over the start on select beside that on test."""
    arm, place = result.arms[0], result.main.places[0]
    if arm.select_value is None:
        return None
    shrunk = (
        ""
        if place.shrunk is None
        else f", {score(place.shrunk)} after shrinkage towards the settings' mean"
    )
    text = (
        f"the search said {score(arm.select_value)} gold on select prompts (one seed, the best of its trials); on test, "
        f"over {len(result.seeds)} seeds, it is {score(place.gold)} (95 % interval {place.low:.3f} to {place.high:.3f}{shrunk})"
    )
    start, on_test = result.arms[-1], result.main.against[-1]
    if start.role != "start" or start.select_gold is None:
        return f"{text}: {_missing(arm.select_value - place.gold, 'a drop of')}"
    gain = arm.select_value - start.select_gold
    return (
        f"{text}. Over the untrained start it gains {on_test.difference:+.3f} on test where the search saw {gain:+.3f}: "
        f"{_missing(gain - on_test.difference, 'it lacks')}"
    )


def _missing(lost: float, verb: str) -> str:
    """What of the search's figure is not there on test, and what may have made it."""
    if round(lost, 3) <= 0:
        return "nothing of it is missing, so no luck of the pick shows"
    return (
        f"{verb} {lost:.3f}; luck of the pick, the single seed and other prompts can each bring that, and can't be told "
        "apart here"
    )


def seeds_words(result: ConfirmResult) -> str:
    """Gold of single seeds of the recommended setting, and of the winner where that is another one."""
    judged = result.main
    return "; ".join(seeds_of(result, arm) for arm in dict.fromkeys((0, judged.winner)))


def seeds_of(result: ConfirmResult, arm: int) -> str:
    """Lowest and highest gold of one setting's seeds, and how many of them fail."""
    judged = result.main
    golds = judged.places[arm].by_seed
    text = f"{judged.names[arm]}: lowest {score(min(golds))}, highest {score(max(golds))} gold of {len(golds)} seeds"
    low = failed_seeds(result, arm)
    if low is None:
        return text
    if not low:
        return f"{text}; each gains at least half of what the middle one gains over the untrained start"
    what = "end" if len(low) > 1 else "ends"
    gains = "gain" if len(low) > 1 else "gains"
    where = score(min(low)) if len(low) == 1 else f"{score(min(low))} to {score(max(low))}"
    return (
        f"{text}; {len(low)} of {len(golds)} {what} at {where} and {gains} less than half of what the middle one does "
        "over the untrained start"
    )


def failed_seeds(result: ConfirmResult, arm: int) -> tuple[float, ...] | None:
    """Gold of the seeds that gain less than half of what the median seed gains over the start's mean.

    None where there is no start, or the median seed gains nothing.
    """
    judged = result.main
    if result.arms[-1].role != "start" or arm == len(result.arms) - 1:
        return None
    start, golds = judged.places[-1].gold, judged.places[arm].by_seed
    gain = median(golds) - start
    return None if gain <= 0 else tuple(g for g in golds if g - start < gain / 2)


def least_words(result: ConfirmResult) -> str:
    """What this design could have seen."""
    judged = result.main
    return (
        f"a true difference of {judged.least_detectable:.3f} gold is told apart in about 8 of 10 such confirmations; "
        "smaller ones mostly are not, and need more seeds or prompts"
    )


def kl_words(result: ConfirmResult) -> str | None:
    """Settings that broke the KL limit on some seed."""
    over = [
        (name, arm)
        for name, arm in zip(result.main.names, result.arms, strict=True)
        if arm.over_limit
    ]
    if result.kl_limit is None or not over:
        return None
    listed = _listed(
        [f"{name} ({arm.over_limit} of {len(result.seeds)} seeds)" for name, arm in over]
    )
    unit = "nats/token" if result.kl_unit == KLUnit.TOKEN.value else "nats/sequence"
    return f"above the KL limit of {result.kl_limit:g} {unit} at the stop: {listed}"


def role_words(arm: ArmFacts) -> str:
    """What a setting is here."""
    words = {"recommended": "recommended", "candidate": "next best", "start": ""}
    if arm.role != "baseline":
        return words[arm.role]
    return "no KL" if arm.origin == "zero" else "recipe"


def _on(result: ConfirmResult) -> str:
    return f"on {len(result.seeds)} fresh seeds and {result.num_prompts} test prompts"


def _listed(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
