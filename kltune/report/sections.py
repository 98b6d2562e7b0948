"""Rows and the answer in, the sections of the report out, as plain blocks."""

from __future__ import annotations

from collections.abc import Sequence

from kltune.confirm.result import ConfirmResult
from kltune.report.accounting_blocks import accounting_blocks
from kltune.report.answer import headline
from kltune.report.answer_blocks import answer_blocks, detail_blocks
from kltune.report.choice import choose
from kltune.report.compare import worst_overoptimised
from kltune.report.confirm_blocks import confirmed_words, find_confirmation, is_of
from kltune.report.controller_blocks import controller_blocks
from kltune.report.document import (
    Block,
    Bullets,
    Document,
    Figures,
    Paragraph,
    Section,
)
from kltune.report.evidence import Evidence, evidence_sections
from kltune.report.figures import against_kl, over_steps
from kltune.report.gallery import gallery_blocks
from kltune.report.guard_blocks import guard_blocks
from kltune.report.importance_blocks import importance_blocks
from kltune.report.overlays import overlay
from kltune.report.part_blocks import part_blocks
from kltune.report.provenance import provenance
from kltune.report.recommend import Answer, NoAnswer, Recommendation
from kltune.report.rows import StudyRows, TrialRow
from kltune.report.search_map import search_map
from kltune.report.sheets import sheets
from kltune.report.start import against_start
from kltune.report.table import trial_blocks
from kltune.report.ties import is_compared, tie_words
from kltune.report.timeline import timeline
from kltune.report.tokens_blocks import token_blocks
from kltune.report.unended import progress_words
from kltune.study.importance import Importance
from kltune.trial.words import count_words


def compose(
    study: StudyRows, answer: Answer, importance: Importance, evidence: Evidence
) -> Document:
    """The whole report, the answer first."""
    best = answer.best if isinstance(answer, Recommendation) else None
    ranking = answer.ranking if isinstance(answer, Recommendation) else None
    worst = worst_overoptimised(study.trials)
    sections = [
        Section(
            "What to change" if best is None else "The answer",
            "recommendation",
            answer_blocks(study, answer),
        ),
        Section("Details of the answer", "details", detail_blocks(study, answer)),
        Section(
            "Gold and proxy against KL", "frontier", _frontier_blocks(study, best, worst, evidence)
        ),
        Section("Where the search looked", "map", _map_blocks(study, best)),
        *evidence_sections(study, answer, evidence),
        Section("Over the steps", "steps", _step_blocks(study, best, worst)),
        Section("What the parts of the proxy did", "parts", part_blocks(study, (best, worst))),
        Section("Where the KL lies", "tokens", token_blocks(best, worst)),
        Section("What the models wrote", "samples", gallery_blocks(best, worst)),
        Section("How the controllers behaved", "controllers", controller_blocks(study)),
        Section("What the guards said", "guards", guard_blocks(study)),
        Section("How the trials went", "timeline", _timeline_blocks(study)),
        Section("All trials", "trials", trial_blocks(study, best, ranking)),
        Section("What mattered", "importance", importance_blocks(study, best, importance)),
        Section("What was not tested", "untested", (_untested(study, answer),)),
        Section("What it cost", "cost", accounting_blocks(study)),
        Section("How to read and repeat this", "provenance", provenance(study, best)),
    ]
    return Document(
        title=f"kltune: {study.spec.name}",
        subtitle=progress_words(study),
        headline=_headline(study, answer),
        is_answer=best is not None,
        is_doubtful=_is_doubtful(study, answer),
        sections=tuple(s for s in sections if s.blocks),
        sheets=sheets(study, answer),
    )


def _headline(study: StudyRows, answer: Answer) -> str:
    """The answer, and what a confirmation said about it."""
    if isinstance(answer, NoAnswer):
        return answer.reason
    confirmed = confirmed_words(study, answer)
    if confirmed is None:
        return headline(study, answer)
    result = choose(study, answer).confirmation
    if result is None:  # of another setting: what is said here is not confirmed
        words = (headline(study, answer, is_short=True), tie_words(study, answer), confirmed)
        return " ".join(text for text in words if text)
    kl = (result.arms[0].kl_token, result.arms[0].kl_seq)
    first = headline(study, answer, is_short=True, is_confirmed=_beats_start(result), kl=kl)
    return f"{first} {confirmed}"


def _beats_start(result: ConfirmResult) -> bool:
    """Whether the confirmed setting was above the untrained model on fresh seeds too."""
    start = next((p for p in result.main.places if result.arms[p.arm].role == "start"), None)
    own = next((p for p in result.main.places if p.arm == 0), None)
    return start is not None and own is not None and own.gold > start.gold


def _is_doubtful(study: StudyRows, answer: Answer) -> bool:
    """Tied, or with nothing to compare it with: by the confirmation where there is one, else in the search."""
    if isinstance(answer, NoAnswer):
        return False
    confirmation, _ = find_confirmation(study.path)
    if confirmation is not None and is_of(confirmation, answer):
        return confirmation.main.verdict != "stays"
    against = against_start(study, answer)
    return bool(answer.tied) or not is_compared(answer) or bool(against and against.words)


def _map_blocks(study: StudyRows, best: TrialRow | None) -> tuple[Block, ...]:
    figure = search_map(study, best)
    return () if figure is None else (Figures((figure,)),)


def _timeline_blocks(study: StudyRows) -> tuple[Block, ...]:
    figure = timeline(study)
    return () if figure is None else (Figures((figure,)),)


def _frontier_blocks(
    study: StudyRows, best: TrialRow | None, worst: TrialRow | None, evidence: Evidence
) -> tuple[Block, ...]:
    rows = [row for row in study.trials if row.checkpoints]
    if not rows:
        return ()
    unit = study.beta_unit_words
    note = Paragraph(
        "One line a trial, one dot an evaluation on the select prompts; training moves to the right. "
        "KL is the exact KL(policy ‖ reference).",
        "note",
    )
    over = overlay(study, evidence.laws)
    return (Figures(against_kl(rows, best, worst, unit, over)), note)


def _step_blocks(
    study: StudyRows, best: TrialRow | None, worst: TrialRow | None
) -> tuple[Block, ...]:
    zero = next((row for row in study.trials if row.setting.beta == 0), None)
    titles: dict[int, str] = {}
    for title, row in (("recommended", best), ("most over-optimised", worst), ("beta = 0", zero)):
        if row is not None and row.checkpoints:
            held = titles.get(row.number)
            titles[row.number] = title if held is None else f"{held}, {title}"
    if not titles:
        return ()
    by_number = {row.number: row for row in study.trials}
    chosen = [(title, by_number[n]) for n, title in titles.items()]
    figures = Figures(over_steps(chosen, study.spec.kl_unit, study.beta_unit_words))
    why = (
        Paragraph(
            "No trial was over-optimised beyond noise: in none did gold fall from its peak by more than the noise of "
            "the prompts while the proxy rose.",
            "note",
        )
        if worst is None
        else Paragraph(
            f"Most over-optimised: trial {worst.number}, the largest fall of gold from its peak to the end "
            "while the proxy rose, among those beyond the noise of the prompts.",
            "note",
        )
    )
    return (figures, why)


def _untested(study: StudyRows, answer: Answer) -> Bullets:
    confirmation, _ = find_confirmation(study.path)
    seeds: Sequence[int] = sorted({row.setting.seed for row in study.trials})
    listed = ", ".join(map(str, seeds)) or str(study.spec.seed)
    items: list[str] = []
    is_judged = any(row.final is not None for row in study.trials)
    if is_judged and (confirmation is None or not is_of(confirmation, answer)):
        once = (
            "only the setting that was repeated was trained on several seeds"
            if isinstance(answer, Recommendation) and answer.ranking.repeats is not None
            else f"settings were trained once each (seed {listed})"
        )
        items += [
            f"Fresh seeds: {once}. Another run of the same setting may differ "
            "by more than the intervals here. kltune confirm trains the best anew.",
            "The test prompts: no trial has seen them. Values here are on the select prompts, which also chose the "
            "winner: expect a little less on new ones. kltune confirm judges there.",
        ]
    items.append(
        f"Another base model, more than {study.spec.trainer.steps} steps, another batch size than "
        f"{study.spec.trainer.rows} completions a step."
    )
    if isinstance(answer, Recommendation) and study.spec.objective.metric == "gold_peak":
        items.append(
            f"The choice among {count_words(len(study.trials), 'trial')}: the corrected value allows for having picked the best step "
            "of a trial, not for having picked the best trial."
        )
    return Bullets(tuple(items))
