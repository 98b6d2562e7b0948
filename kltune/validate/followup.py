"""What came after the search in; whether the winner was confirmed and moved to another size out, as lines."""

from __future__ import annotations

from collections.abc import Sequence

from kltune.confirm import words
from kltune.confirm.looks import times
from kltune.confirm.result import ArmFacts, ConfirmResult
from kltune.grade import Grade
from kltune.report.recommend import Recommendation
from kltune.report.rows import StudyRows
from kltune.spec.trial import KLUnit
from kltune.transfer.result import Kind, TransferResult
from kltune.trial.words import KL_UNIT, is_noise, score
from kltune.validate.result import Line


def is_of(confirmed: ConfirmResult, answer: Recommendation) -> bool:
    """Whether the confirmation is of what the study recommends now."""
    return confirmed.arms[0].number == answer.best.number


def confirmed_line(answer: Recommendation, confirmed: ConfirmResult | None) -> Line:
    """Whether fresh seeds and the test prompts say the same; reads what ``kltune confirm`` left."""
    title, unit = "Winner confirmed", "gold"
    threshold = (
        "warn: tied or not confirmed; fail: another setting is better, or a requirement failed"
    )
    if confirmed is None:
        meaning = "Not confirmed: no fresh seed and no test prompt has been looked at."
        action = "Run kltune confirm on this study."
        return Line(
            "confirmed", title, Grade.WARN, None, unit, "not confirmed", threshold, meaning, action
        )
    main = confirmed.main
    name = main.names[main.winner]
    best = main.best_baseline
    number = None if best is None else best.difference
    design = (
        f"{len(confirmed.seeds)} fresh seeds × {confirmed.num_prompts} test prompts, looked at "
        f"{times(confirmed.looks)}"
    )
    shown = design
    if best is not None:
        shown = (
            f"{best.difference:+.3f} ({best.low:+.3f} to {best.high:+.3f}) gold against "
            f"{main.names[best.arm]}; {design}"
        )
    grade, meaning, action = _judged(confirmed, answer, name)
    return Line("confirmed", title, grade, number, unit, shown, threshold, meaning, action)


def _judged(confirmed: ConfirmResult, answer: Recommendation, name: str) -> tuple[Grade, str, str]:
    main, own = confirmed.main, confirmed.arms[0]
    if not is_of(confirmed, answer):
        meaning = (
            "The confirmation is of another setting than the one that the study recommends now."
        )
        return Grade.WARN, meaning, "Run kltune confirm again."
    seeds = _single_seeds(confirmed, own)
    failed = [gate for gate in confirmed.gates if not gate.holds]
    if main.verdict == "changes":
        meaning = f"On fresh seeds and test prompts another setting is better: {name}. {seeds}"
        return Grade.FAIL, meaning, f"Use {name}."
    if failed:
        meaning = (
            f"A requirement of the confirmation does not hold: {failed[0].text} ({failed[0].why}). "
            f"{seeds}"
        )
        return Grade.FAIL, meaning, "Don't scale this up as it is."
    if main.verdict == "tied":
        meaning = (
            "On fresh seeds and test prompts the winner can't be told apart from another setting: there is no "
            f"winner, but a group. {seeds}"
        )
        action = (
            f"Use {name}, or more seeds: a true difference of {score(main.least_detectable)} gold shows in about 8 of 10 "
            "such confirmations, a smaller one mostly does not."
        )
        return Grade.WARN, meaning, action
    if own.over_limit or own.diverged:
        return (
            Grade.WARN,
            f"The winner stays, but not within bounds on every seed. {seeds}",
            "Raise beta or stop earlier.",
        )
    if words.failed_seeds(confirmed, 0):
        action = "Expect the same of the big run: plan more than one seed, or raise beta."
        return Grade.WARN, f"The winner stays, but some of its seeds fail. {seeds}", action
    return Grade.PASS, f"The winner stays on fresh seeds and test prompts. {seeds}", ""


def _single_seeds(confirmed: ConfirmResult, own: ArmFacts) -> str:
    """Lowest and highest gold, seeds that fail, and those above the KL limit or lost."""
    count = len(confirmed.seeds)
    parts = [f"Single seeds: {words.seeds_of(confirmed, 0)}"]
    if confirmed.kl_limit is not None:
        unit = KL_UNIT[KLUnit(confirmed.kl_unit)]
        parts.append(
            f"{own.over_limit} of {count} above the KL limit of {confirmed.kl_limit:g} {unit} at the stop"
        )
    if own.diverged:
        parts.append(f"{own.diverged} of {count} diverged before it")
    return f"{'; '.join(parts)}."


def transfer_line(found: Sequence[TransferResult]) -> Line:
    """Whether the best beta was compared over model sizes; ``found``: results that name the study, oldest first."""
    title, unit = "Transfer to another size checked", "factor on beta"
    threshold = "warn: not checked, beta shifts, or can't tell"
    if not found:
        meaning = "Nobody has looked whether the best beta is the same on another model size."
        action = "Run the same spec on two more sizes, then kltune transfer."
        return Line(
            "transfer", title, Grade.WARN, None, unit, "not checked", threshold, meaning, action
        )
    beta = found[-1].beta
    is_good = beta.kind is Kind.TRANSFERS
    grade = Grade.PASS if is_good else Grade.WARN
    actions = {
        Kind.SHIFTS: "Scale beta by the factor, and stay near the sizes that were compared.",
        Kind.UNKNOWN: "Add a size or more trials, or hold the KL by a target.",
    }
    shown = f"{len(found[-1].studies)} sizes: {beta.verdict}"
    action = actions.get(beta.kind, "")
    number = beta.factor.value
    return Line("transfer", title, grade, number, unit, shown, threshold, beta.words, action)


def untested(
    study: StudyRows, confirmed: ConfirmResult | None, transfers: Sequence[TransferResult]
) -> tuple[str, ...]:
    """What nobody has looked at, in sentences."""
    trainer = study.spec.trainer
    said: list[str] = []
    if confirmed is None:
        seeds = len({row.setting.seed for row in study.trials if not is_noise(row.origin)})
        said.append(
            f"Fresh seeds and test prompts: every number here is of {seeds} seed{'s' * (seeds != 1)} and of the "
            "select prompts that also chose the winner."
        )
    if not transfers:
        said.append("Another model size: beta may have to shift.")
    said += [
        f"More than {trainer.steps} steps, another batch than {trainer.rows} completions a step, longer completions "
        f"than {trainer.max_new_tokens} tokens.",
        "Another proxy, another gold or other prompts than this task's.",
        "Your trainer: its KL estimator, clamps and units may differ (kltune report, native settings; kltune audit).",
    ]
    return tuple(said)
