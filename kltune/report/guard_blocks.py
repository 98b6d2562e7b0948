"""A study in, the section on what its guards said out."""

from __future__ import annotations

from kltune.report.document import Block, Bullets, Grid, Paragraph
from kltune.report.guards import GuardFindings, Said, find_guards
from kltune.report.reckon import account
from kltune.report.rows import StudyRows
from kltune.spec.guard_doubts import needs_words
from kltune.trial.guard_words import STOPPED
from kltune.trial.words import MISSING, count_words, duration

_HEADER = (
    "guard",
    "does",
    "trials ended",
    "trials warned of",
    "first at step",
    "trial-steps spared",
    "time spared (one worker)",
)
_MOST_WARNINGS = 12
"""Listed one by one; report.json has all."""


def guard_blocks(study: StudyRows) -> tuple[Block, ...]:
    """In one sentence, as a table, and the warnings in the guards' own words; empty where no trial ended or was warned of."""
    found = find_guards(study)
    if not found.said and not account(study).steps.planned:
        return ()
    blocks: list[Block] = [Paragraph(said_words(study, found))]
    if found.said:
        cells = tuple(_cells(one) for one in found.said)
        blocks.append(Grid(_HEADER, cells, numeric=frozenset((2, 3, 4, 5, 6))))
    warned = [
        f"Trial {row.number}, step {w.step} ({w.guard}): {w.detail}"
        for row in study.trials
        for w in row.warnings
    ]
    if warned:
        more = len(warned) - _MOST_WARNINGS
        rest = [f"and {more} more, which report.json holds"] if more > 0 else []
        blocks.append(Paragraph("Warnings, in the guards' own words:"))
        blocks.append(Bullets((*warned[:_MOST_WARNINGS], *rest)))
    blocks.append(Paragraph(_silence_words(study, found), "note"))
    return tuple(blocks)


def said_words(study: StudyRows, found: GuardFindings) -> str:
    """How many trials guards ended and warned of, and what that spared."""
    total, planned = len(study.trials), account(study).steps.planned
    ended = sum(len(one.stopped) for one in found.said)
    warned = len({number for one in found.said for number in one.warned})
    if not ended and not warned:
        return f"No guard said anything of {count_words(total, 'trial')}."
    steps = sum(one.spared_steps for one in found.said)
    share = f" ({100 * steps / planned:.0f} %)" if planned else ""
    text = f"Guards ended {ended} of {count_words(total, 'trial')}"
    if ended:
        text += f", which spared {steps:,} of {planned:,} planned trial-steps{share}{_last_step_words(study)}"
    return (
        f"{text}, and warned of {warned}. A stop is part of its setting; a warning changes nothing."
    )


def _cells(one: Said) -> tuple[str, ...]:
    first, last = min(one.first_steps), max(one.first_steps)
    return (
        one.guard.value,
        one.action,
        _numbers(one.stopped),
        _numbers(one.warned),
        str(first) if first == last else f"{first} – {last}",
        f"{one.spared_steps:,}" if one.stopped else MISSING,
        duration(one.spared_s) if one.stopped else MISSING,
    )


def _last_step_words(study: StudyRows) -> str:
    """Trials that a guard ended when they had nothing left to run: they count as ended by it, everywhere."""
    last = [
        row.number
        for row in study.trials
        if row.reason in STOPPED and row.steps_run >= study.spec.trainer.steps
    ]
    if not last:
        return ""
    them = f"trial{'s' * (len(last) > 1)} {', '.join(map(str, last))}"
    return f"; {them} counted in, whose guard spoke at the last step and spared nothing"


def _numbers(trials: tuple[int, ...]) -> str:
    """How many, and which."""
    if not trials:
        return "0"
    listed = ", ".join(map(str, trials[:6])) + (", …" if trials[6:] else "")
    return f"{len(trials)} ({listed})"


def _silence_words(study: StudyRows, found: GuardFindings) -> str:
    texts: list[str] = []
    if found.silent:
        texts.append(f"On and silent: {', '.join(found.silent)}.")
    if found.could_not:
        steps, every = study.spec.trainer.steps, study.spec.evaluate.every
        texts.append(
            f"On, but could not fire in {steps} steps with an evaluation every {every}, so their silence says nothing: "
            f"{needs_words(found.could_not)}."
        )
    if found.off:
        texts.append(f"Off: {', '.join(found.off)}.")
    if found.unknown:
        texts.append("This study is of an earlier kltune, which had no other guards.")
    texts.append("What is not finite always ends a trial, as diverged.")
    return " ".join(texts)
