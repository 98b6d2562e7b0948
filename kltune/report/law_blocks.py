"""What the over-optimisation law says of a study in; the section of the report, and its data, out."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from kltune.report.document import Block, Facts, Figures, Grid, Paragraph
from kltune.report.law_figure import law_figure
from kltune.report.law_findings import LawFindings, TrialLaw
from kltune.report.law_words import (
    beta_words,
    budget_words,
    chance_words,
    factor_words,
    frontier_words,
    interval_words,
    pooled_words,
    settling_words,
)
from kltune.report.rows import StudyRows
from kltune.statistics.law import LawFit, LawVerdict
from kltune.statistics.settling import Settling, Trend
from kltune.trial.words import MISSING, number, setting_short

_HEADER = (
    "trial",
    "setting",
    "law",
    "a",
    "b",
    "KL* (nats/sequence)",
    "missed as much by chance",
    "KL in the last half of the steps",
)

_NOTE = (
    "The law (Gao et al. 2022): gold gained = d · (a − b · log d) with d = √(KL in nats/sequence). Gold peaks at KL*; "
    "b says how fast gold turns. Intervals are 95 % and hold for noise of prompts (whatever it does from one "
    "evaluation to the next) and for a run that wanders about the law; KL measured with error counts as wandering. "
    "A trial's interval assumes that wandering lasts for one or two evaluations: where it lasts much longer it is too "
    "narrow; that of all trials together assumes nothing of it. Not covered: what would be different with other "
    "seeds for all trials at once, another task or another model. Law rejected: the trial is further off than "
    "prompts and usual runs explain; a law that holds is rejected in about 1 of 20 trials."
)

_MOST_ROWS = 40


def law_blocks(study: StudyRows, found: LawFindings) -> tuple[Block, ...]:
    """The answers in words, the figure, and a row for each trial; empty where nothing can be fitted."""
    if not found.trials:
        return ()
    facts = [
        ("KL at which gold peaks", pooled_words(found.pooled, found.gap)),
        ("One frontier for all betas?", frontier_words(found.frontier)),
        ("KL at the end of the trials", settling_words(found)),
    ]
    if found.beta is not None:
        facts.append(("Is beta told?", beta_words(found.beta)))
        if advice := budget_words(found):
            facts.append(("What to carry over", advice))
    shown = _shown(found)
    marked = frozenset(
        i
        for i, law in enumerate(shown)
        if found.beta is not None and law.row.number == found.beta.law.row.number
    )
    blocks: list[Block] = [
        Facts(tuple(facts)),
        Figures((law_figure(found),)),
        Grid(
            _HEADER,
            tuple(_cells(study, law) for law in shown),
            marked,
            numeric=frozenset((0, 3, 4, 6)),
        ),
    ]
    if len(shown) < len(found.trials):
        rest = f"The {len(shown)} trials of {len(found.trials)} with the highest value."
        blocks.append(Paragraph(rest, "note"))
    return (*blocks, Paragraph(_NOTE, "note"))


def law_facts(found: LawFindings) -> dict[str, Any]:
    """The same for report.json."""
    beta = found.beta
    return {
        "pooled": _fit_data(found.pooled),
        "largest_gap": None if found.gap is None else asdict(found.gap),
        "frontier": {**asdict(found.frontier), "is_one": found.frontier.is_one},
        "trials": [
            {
                "trial": law.row.number,
                **_fit_data(law.fit),
                "settling": {**asdict(law.settling), "trend": law.settling.trend.value},
            }
            for law in found.trials
        ],
        "beta": None
        if beta is None
        else {
            "verdict": beta.verdict.value,
            "trial": beta.law.row.number,
            "kl_seq_at_stop": beta.kl_stop,
            "words": beta_words(beta),
        },
        "kl_budget": None if found.budget is None else asdict(found.budget),
        "words": {
            "peak": pooled_words(found.pooled, found.gap),
            "frontier": frontier_words(found.frontier),
            "settling": settling_words(found),
            "advice": budget_words(found),
        },
    }


def _shown(found: LawFindings) -> list[TrialLaw]:
    kept = sorted(found.trials, key=lambda law: (-_value(law), law.row.number))
    return sorted(kept[:_MOST_ROWS], key=lambda law: law.row.number)


def _value(law: TrialLaw) -> float:
    return -math.inf if law.row.value is None else law.row.value


def _cells(study: StudyRows, law: TrialLaw) -> tuple[str, ...]:
    fit = law.fit
    return (
        str(law.row.number),
        setting_short(law.row.setting, study.spec.kl_unit),
        _verdict(fit),
        interval_words(fit.a),
        interval_words(fit.b),
        _peak_cell(fit),
        MISSING if math.isnan(fit.misfit_p) else chance_words(fit.misfit_p),
        _settling_cell(law.settling),
    )


def _verdict(fit: LawFit) -> str:
    if fit.verdict is LawVerdict.NOT_IDENTIFIABLE:
        return f"{fit.verdict.value}: {fit.doubt.value}"
    return fit.verdict.value


def _peak_cell(fit: LawFit) -> str:
    if fit.kl_peak is None or fit.verdict is LawVerdict.REJECTED:
        return MISSING
    if fit.verdict is LawVerdict.IDENTIFIED:
        return interval_words(fit.kl_peak)
    low, top = fit.kl_peak.low, fit.kl_range[1]
    if low > top:
        return f"beyond {number(top)}, if any"
    return f"not below {number(low)}" if low > fit.kl_range[0] else MISSING


def _settling_cell(found: Settling) -> str:
    if found.trend is Trend.SETTLED:
        return f"settled at {number(found.level)}"
    return f"{found.trend.value} ({factor_words(found)})"


def _fit_data(fit: LawFit) -> dict[str, Any]:
    data = asdict(fit)
    data.update(form=fit.form.value, verdict=fit.verdict.value, doubt=fit.doubt.value)
    return data
