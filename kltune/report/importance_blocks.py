"""What the searched parameters explain in, the blocks of "What mattered" out: what is told from chance, and from how many trials."""

from __future__ import annotations

from kltune.report.controller_rules import rule_sentence
from kltune.report.document import Block, Bullets, Figure, Figures, Paragraph
from kltune.report.figures import importance_bars
from kltune.report.parallel import parallel_coordinates
from kltune.report.rows import StudyRows, TrialRow
from kltune.spec.trial import ControllerKind
from kltune.study.importance import Importance
from kltune.trial.words import count_words

_HOW = (
    "Each parameter is judged over the trials that drew it, by a parabola (on the scale it was drawn on) or by "
    "the mean of each choice, and by what it explains beyond those named before it. Told from chance: values shuffled "
    "between trials do as well with p ≤ 0.05, corrected for the number of parameters. It says what the value varied with "
    "in these trials, not why; a parameter that can't be told from chance may still matter."
)


def importance_blocks(
    study: StudyRows, best: TrialRow | None, importance: Importance
) -> tuple[Block, ...]:
    """The findings, their drawing, every trial's setting as a line, and the rules of the controllers."""
    used = _used_words(study, importance)
    blocks: list[Block] = []
    if importance.unavailable is not None:
        blocks.append(
            Paragraph(f"Importance: not available: {importance.unavailable} ({used}).", "note")
        )
    elif importance.parameters:
        blocks += [
            Paragraph(
                f"{_verdict(importance)} ({used}: complete ones that were drawn; pruned, failed "
                "and fixed ones are left out)."
            ),
            Bullets(importance.sentences()),
            Paragraph(_HOW, "note"),
        ]
    figures: list[Figure] = []
    if importance.shares:
        caption = (
            "Variance of the value that each parameter explains, beyond those above it; only what is told from "
            f"chance ({used})."
        )
        figures.append(importance_bars(dict(importance.shares), caption))
    parallel = parallel_coordinates(study.trials, best, study.spec.kl_unit)
    if parallel is not None:
        figures.append(parallel)
    if figures:
        blocks.append(Figures(tuple(figures)))
    kinds = {row.setting.controller for row in study.trials}
    blocks += [
        Paragraph(rule_sentence(study.spec, kind), "note")
        for kind in ControllerKind
        if kind in kinds
    ]
    return tuple(blocks)


def _used_words(study: StudyRows, importance: Importance) -> str:
    """From how many trials; study.db still knows those whose folders are gone."""
    used = f"{importance.num_used} of {count_words(importance.num_trials, 'trial')} used"
    gone = importance.num_trials - sum(row.outcome is not None for row in study.trials)
    return used if gone <= 0 else f"{used}, of which {gone} have no folder any more"


def _verdict(importance: Importance) -> str:
    names = [p.name for p in importance.parameters if p.is_found]
    if not names:
        return "No searched parameter can be told from chance here"
    if len(names) == 1:
        return f"The value varied with {names[0]}; nothing else is told from chance"
    return f"The value varied with {', '.join(names[:-1])} and {names[-1]}; nothing else is told from chance"
