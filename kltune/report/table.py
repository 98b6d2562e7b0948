"""A study's trials in, the table of all of them out."""

from __future__ import annotations

from kltune.report.document import Block, Grid, Paragraph
from kltune.report.ranking import Ranking
from kltune.report.rows import StudyRows, TrialRow
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
    "group",
    "setting",
    "from",
    "value",
    "gold: start",
    "gold: peak ± s.e.",
    "gold: last ± s.e.",
    "KL at peak (nats/token)",
    "KL at peak (nats/sequence)",
    "steps",
    "state",
    "within limits",
    "why it ended",
    "proxy: peak → last",
    "beta range",
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
        numeric=frozenset((0, 1, 4, 5, 6, 7, 8, 9, 10, 14, 15, 16)),
        kind="trials",
    )
    words = (
        "there is no KL limit"
        if limit is None
        else f"KL {number(limit)} {KL_UNIT[study.spec.kl_unit]}"
    )
    note = Paragraph(
        "In groups that can't be told apart, the one that may hold the best first; within a group by trial number, "
        f"which says nothing of which is better. Then repeats on other seeds, the trials outside {limit_words(study.spec.objective)} ({words}), pruned, failed and unfinished "
        "ones. Value: what the search maximised, "
        f"{study.spec.objective.metric} on the select prompts. ± is one standard error over prompts. Setting: penalty "
        f"and beta in {unit}; “→ 0.1/{study.spec.kl_unit.value[:3]} h 500” is a target of 0.1 {KL_UNIT[study.spec.kl_unit]} with a horizon of 500 "
        "sequences.",
        "note",
    )
    return (note, grid)


def _state_words(row: TrialRow) -> str:
    """What became of the trial, and which guards warned of it."""
    if not row.warnings:
        return row.state.value
    return f"{row.state.value}; warned: {', '.join(w.guard for w in row.warnings)}"


def _table_order(row: TrialRow, group: int | None) -> tuple[int, int, int]:
    if row.value is None:
        return (2, 0, row.number)
    return (0 if row.is_candidate else 1, 10**9 if group is None else group, row.number)


def _cells(study: StudyRows, row: TrialRow, group: int | None) -> tuple[str, ...]:
    start, peak, final = row.start, row.peak, row.final
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
        origin_words(row.origin),
        score(row.value),
        MISSING if start is None else score(start.gold),
        MISSING if peak is None else score(peak.gold, peak.gold_se),
        MISSING if final is None else score(final.gold, final.gold_se),
        MISSING if peak is None else number(peak.kl_token),
        MISSING if peak is None else number(peak.kl_seq),
        str(row.steps_run),
        _state_words(row),
        feasible,
        row.detail or MISSING,
        proxies,
        betas,
        duration(row.seconds),
    )
