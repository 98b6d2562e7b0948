"""A study and its answer in; the first screen, and the details of what it says, out."""

from __future__ import annotations

from kltune.report.answer import BASELINE_HEADER, answer_facts, baseline_cells
from kltune.report.cautions import cautions
from kltune.report.choice import Choice, choose
from kltune.report.document import Block, Bullets, Facts, Grid, Paragraph
from kltune.report.hero import hero
from kltune.report.recommend import Answer, NoAnswer
from kltune.report.rows import StudyRows, TrialRow


def answer_blocks(study: StudyRows, answer: Answer) -> tuple[Block, ...]:
    """What to type and what it is worth, or what to change; then what a reader must be warned of."""
    warnings = tuple(Paragraph(text, "warning") for text in cautions(study, answer))
    if isinstance(answer, NoAnswer):
        return (Bullets(answer.advice), *warnings)
    choice = choose(study, answer)
    if choice.is_changed:
        warnings = (Paragraph(_changed_words(choice), "warning"), *warnings)
    return (hero(study, choice), *warnings)


def detail_blocks(study: StudyRows, answer: Answer) -> tuple[Block, ...]:
    """The same with all formulas, units and reasons, and each baseline; empty where there is no answer."""
    if isinstance(answer, NoAnswer):
        return ()
    setting, *others = answer_facts(study, answer)
    facts = Facts((setting, *_gradient(answer.best), *others))
    if not answer.baselines:
        return (facts,)
    cells = tuple(baseline_cells(versus) for versus in answer.baselines)
    return (facts, Grid(BASELINE_HEADER, cells, numeric=frozenset((1, 2, 3, 4))))


def _gradient(row: TrialRow) -> tuple[tuple[str, str], ...]:
    """What a penalty of the same name elsewhere must have, to be the same one."""
    penalty = row.setting.penalty
    if row.setting.beta == 0 or penalty is None:
        return ()
    return (("Its gradient", f"{penalty.nature.gradient} ({penalty.value})"),)


def _changed_words(choice: Choice) -> str:
    return (
        f"What to type is the setting of trial {choice.row.number}: fresh seeds and test prompts put it above trial "
        f"{choice.found.best.number}, which the search had chosen and which the details below are about."
    )
