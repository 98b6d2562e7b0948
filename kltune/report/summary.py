"""A study folder in, plain data out: what ``sweep --json`` prints and ``report.json`` holds."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from kltune.metrics.jsonl import encode
from kltune.report.answer import answer_facts, headline
from kltune.report.compare import Difference, plateau, spread_ratio
from kltune.report.controller_blocks import controller_data
from kltune.report.guards import guard_data
from kltune.report.native import native_coefficient
from kltune.report.reckon import account, accounting_data
from kltune.report.recommend import Answer, NoAnswer, Recommendation, Versus, recommend
from kltune.report.rows import Checkpoint, StudyRows, TrialRow, read_study
from kltune.report.start import against_start
from kltune.trial.outcome import TrialState

HTML = "report.html"


def summary(study_path: Path) -> dict[str, Any]:
    """Answer, trials and report path as strict JSON data: a non-finite number is null."""
    study = read_study(study_path)
    return summarise(study, recommend(study))


def summarise(study: StudyRows, answer: Answer) -> dict[str, Any]:
    """The same for a study that was read already."""
    found = answer if isinstance(answer, Recommendation) else None
    against = None if found is None else against_start(study, found)
    data: dict[str, Any] = {
        "study": study.spec.name,
        "kl_unit": study.spec.kl_unit.value,
        "beta_unit": study.spec.beta_unit.value,
        "sigma_r": study.sigma_r,
        "num_trials": len(study.trials),
        "budget_trials": study.spec.budget.trials,
        "best": None if found is None else _best(study, found),
        "beats_start": None if against is None else against.beats,
        "told_from_start": None if against is None else against.is_told,
        "start_words": "" if against is None else against.words,
        "runner_up": None if found is None else _versus(study, found.runner_up),
        "baselines": [] if found is None else [_versus(study, v) for v in found.baselines],
        "tied_with_highest": [] if found is None else sorted(t.number for t in found.tied),
        "highest_value_trial": None if found is None else found.highest.number,
        "recommendation": _words(study, answer),
        "trials": [trial_data(study, row) for row in study.trials],
        "bookkeeping_frac": study.timing.get("bookkeeping_frac"),
        "accounting": accounting_data(account(study)),
        "guards": guard_data(study),
        "report": str(study.path / HTML),
    }
    return cast("dict[str, Any]", json.loads(encode(data)))


def trial_data(study: StudyRows, row: TrialRow) -> dict[str, Any]:
    """One trial. KL is that at the peak; gold_se is the standard error of gold_peak."""
    peak = row.peak
    moved = row.beta_range
    return {
        "number": row.number,
        "attempt": row.attempt,
        "origin": row.origin,
        "params": row.setting.model_dump(mode="json"),
        "coefficient": native_coefficient(study, row),
        "state": row.state.value,
        "stop_reason": None if row.reason is None else row.reason.value,
        "detail": row.detail,
        "warnings": [asdict(warning) for warning in row.warnings],
        "feasible": row.is_feasible,
        "value": row.value,
        "gold_start": _gold(row.start),
        "gold_peak": _gold(peak),
        "gold_final": row.gold_final,
        "gold_last": _gold(row.final),
        "gold_se": None if peak is None else peak.gold_se,
        "proxy_peak": None if peak is None else peak.proxy,
        "proxy_final": None if row.final is None else row.final.proxy,
        "kl_token": None if peak is None else peak.kl_token,
        "kl_seq": None if peak is None else peak.kl_seq,
        "best_step": None if peak is None else peak.step,
        "beta_low": None if moved is None else moved[0],
        "beta_high": None if moved is None else moved[1],
        "controller": controller_data(study, row),
        "penalty_to_reward_spread": _ratio(study, row),
        "steps": row.steps_run,
        "seconds": round(row.seconds, 3),
    }


def curve_data(row: TrialRow) -> dict[str, Any]:
    """The evaluations of one trial, as columns."""
    points = row.checkpoints
    names = ("step", "gold", "gold_se", "proxy", "proxy_se", "kl_token", "kl_seq")
    columns: dict[str, Any] = {n: [getattr(c, n) for c in points] for n in names}
    if points and points[0].others:
        columns["golds"] = {
            name: [c.others[name].mean for c in points if name in c.others]
            for name in points[0].others
        }
    return {"number": row.number, **columns}


def _best(study: StudyRows, found: Recommendation) -> dict[str, Any]:
    window = found.plateau
    return {
        **trial_data(study, found.best),
        "stop_first_step": window.first_step,
        "stop_last_step": window.last_step,
        "plateau_evaluations": window.width,
    }


def _versus(study: StudyRows, versus: Versus | None) -> dict[str, Any] | None:
    if versus is None:
        return None
    held = plateau(versus.row, study.spec.objective, study.spec.kl_unit)
    return {
        "number": versus.row.number,
        "origin": versus.row.origin,
        "params": versus.row.setting.model_dump(mode="json"),
        "state": versus.row.state.value,
        "feasible": versus.row.is_feasible,
        "value": versus.row.value,
        "plateau_evaluations": None if held is None else held.width,
        "best_minus_this": _difference(versus.difference),
    }


def _difference(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    return {
        "gold": difference.mean,
        "low": None if difference.no_interval else difference.low,
        "high": None if difference.no_interval else difference.high,
        "no_interval": difference.no_interval or None,
        "confidence": 0.95,
        "paired_prompts": difference.num_prompts,
        "differing_prompts": difference.num_differing,
        "told_apart": difference.is_told_apart,
    }


def _words(study: StudyRows, answer: Answer) -> dict[str, Any]:
    if isinstance(answer, NoAnswer):
        return {
            "headline": answer.reason,
            "facts": [["What to change", line] for line in answer.advice],
            "is_final": answer.is_final,
        }
    running = len(study.of_state(TrialState.RUNNING))
    return {
        "headline": headline(study, answer),
        "facts": [list(fact) for fact in answer_facts(study, answer)],
        "is_final": running == 0 and len(study.trials) >= study.spec.budget.trials,
    }


def _gold(point: Checkpoint | None) -> float | None:
    return None if point is None else point.gold


def _ratio(study: StudyRows, row: TrialRow) -> float | None:
    ratio = spread_ratio(study, row)
    return ratio if ratio is not None and math.isfinite(ratio) else None
