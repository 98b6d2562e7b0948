"""A study's trials in, the table of all of them out."""

from __future__ import annotations

import math

from kltune.report.document import Block, Grid, Paragraph
from kltune.report.ranking import Ranking
from kltune.report.rows import StudyRows, TrialRow
from kltune.report.unended import state_words
from kltune.trial.words import (
    KL_UNIT,
    MISSING,
    duration,
    limit_words,
    number,
    origin_words,
    score,
    setting_short,
)

_HEADER = (
    "trial",
    "tie group",
    "setting",
    "value",
    "gold: peak ± s.e.",
    "gold: last ± s.e.",
    "proxy: peak → last",
    "KL at peak (nats/token)",
    "KL at peak (nats/sequence)",
    "within limits",
    "state",
    "steps",
    "why it ended",
    "beta range",
    "from",
    "time",
)


def trial_blocks(
    study: StudyRows, best: TrialRow | None, ranking: Ranking | None = None
) -> tuple[Block, ...]:
    """A note on how to read it, and the table; empty before the first trial.

    In the groups of ``ranking``, best first, and by trial number within each: values that
    can't be told apart are not put in order.
    """
    if not study.trials:
        return ()
    groups = {
        row.number: None if ranking is None else ranking.group_of(row) for row in study.trials
    }
    rows = sorted(study.trials, key=lambda row: _table_order(row, groups[row.number]))
    limit = study.spec.objective.kl_limit
    unit = study.beta_unit_words
    grid = Grid(
        header=_HEADER,
        rows=tuple(_cells(study, row, groups[row.number]) for row in rows),
        marked=frozenset(i for i, row in enumerate(rows) if row is best),
        numeric=frozenset((0, 1, 3, 4, 5, 6, 7, 8, 11, 13, 15)),
        kind="trials",
    )
    words = (
        "there is no KL limit"
        if limit is None
        else f"KL {number(limit)} {KL_UNIT[study.spec.kl_unit]}"
    )
    note = Paragraph(
        "Trials of one tie group can't be told apart: within it they stand by number, which says nothing of which is "
        f"better. Group 1 may hold the best. After the groups: repeats on other seeds, trials outside {limit_words(study.spec.objective)} "
        f"({words}), pruned, failed and unfinished ones. Value: what the search maximised, {study.spec.objective.metric} on the "
        f"select prompts. ± is one standard error over prompts.{_start_words(study)} Setting: penalty and beta in {unit}; "
        f"“→ 0.1/{study.spec.kl_unit.value[:3]} h 500” is a target of 0.1 {KL_UNIT[study.spec.kl_unit]} with a horizon of 500 sequences.",
        "note",
    )
    return (note, grid)


def _start_words(study: StudyRows) -> str:
    """All trials start from the same weights, but each draws its own completions."""
    golds = [row.start.gold for row in study.trials if row.start is not None]
    finite = [gold for gold in golds if math.isfinite(gold)]
    if not finite:
        return ""
    low, high = score(min(finite)), score(max(finite))
    return f" Gold before training: {low if low == high else f'{low} to {high}'}."


def _state_words(study: StudyRows, row: TrialRow) -> str:
    """What became of the trial, and which guards warned of it."""
    state = state_words(study, row)
    if not row.warnings:
        return state
    return f"{state}; warned: {', '.join(w.guard for w in row.warnings)}"


def _table_order(row: TrialRow, group: int | None) -> tuple[int, int, int]:
    if row.value is None:
        return (2, 0, row.number)
    return (0 if row.is_candidate else 1, 10**9 if group is None else group, row.number)


def _cells(study: StudyRows, row: TrialRow, group: int | None) -> tuple[str, ...]:
    peak, final = row.peak, row.final
    moved = row.beta_range
    betas = MISSING
    if moved is not None:
        betas = (
            number(moved[0]) if moved[0] == moved[1] else f"{number(moved[0])} – {number(moved[1])}"
        )
    feasible = MISSING if row.is_feasible is None else ("yes" if row.is_feasible else "no")
    proxies = MISSING
    if peak is not None and final is not None:
        proxies = f"{score(peak.proxy)} → {score(final.proxy)}"
    return (
        str(row.number),
        MISSING if group is None else str(group),
        setting_short(row.setting, study.spec.kl_unit),
        score(row.value),
        MISSING if peak is None else score(peak.gold, peak.gold_se),
        MISSING if final is None else score(final.gold, final.gold_se),
        proxies,
        MISSING if peak is None else number(peak.kl_token),
        MISSING if peak is None else number(peak.kl_seq),
        feasible,
        _state_words(study, row),
        str(row.steps_run),
        row.detail or MISSING,
        betas,
        origin_words(row.origin),
        duration(row.seconds),
    )
