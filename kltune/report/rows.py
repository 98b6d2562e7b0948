"""A study folder in, plain rows out: everything that the report says is computed from these.

Reads only the record on disk (design.md §8), so a copied or a running study works as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from kltune.errors import StudyError
from kltune.metrics.jsonl import Damage, read_json
from kltune.metrics.record import OtherGold
from kltune.metrics.rows import other_golds
from kltune.report.trial_cost import TrialCost, seconds_in_slot, trial_cost
from kltune.spec.load import from_resolved
from kltune.spec.study import ObjectiveSpec, StudySpec
from kltune.spec.trial import KLUnit, TrialSpec
from kltune.study.holder import is_at_work
from kltune.trial.objective import judge_trial, point_of_row
from kltune.trial.outcome import STATE_OF, StopReason, TrialOutcome, TrialState
from kltune.trial.record import ScoreErrors, TrialRecord, Warned, each_trial
from kltune.trial.words import beta_unit_words

NAN = float("nan")
TOUCHED = (
    "train/penalty_clipped_frac",
    "train/score_clipped_frac",
    "train/unscored_frac",
    "ctrl/at_bound",
)
"""What a spec may ask for and must not happen in silence."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One evaluation of one trial, on the select prompts."""

    step: int
    gold: float
    gold_se: float
    proxy: float
    proxy_se: float
    kl_token: float
    kl_seq: float
    gold_by_prompt: tuple[float, ...]
    others: Mapping[str, OtherGold] = field(default_factory=dict[str, OtherGold])
    """The golds beside the objective's, by name."""

    def kl(self, unit: KLUnit) -> float:
        """Exact KL in ``unit``."""
        return self.kl_token if unit is KLUnit.TOKEN else self.kl_seq


@dataclass(frozen=True, slots=True)
class Curve:
    """The training steps of one trial; all tuples have the length of ``step``."""

    step: tuple[int, ...]
    kl_token: tuple[float, ...]
    kl_seq: tuple[float, ...]
    proxy: tuple[float, ...]
    beta: tuple[float, ...]
    coefficient: tuple[float, ...]
    target: tuple[float, ...]
    """Set point of the controller in kl_unit; nan where there is none."""
    touched: Mapping[str, float]
    """Mean share over the steps of what `TOUCHED` names; 0 where a step does not say."""
    anchor_token: tuple[float, ...] = ()
    """KL to the reference that follows the policy; empty where it stays the start."""
    anchor_seq: tuple[float, ...] = ()

    def held(self, unit: KLUnit) -> tuple[float, ...]:
        """The KL that penalty and controller act on: to the reference in force."""
        if unit is KLUnit.TOKEN:
            return self.anchor_token or self.kl_token
        return self.anchor_seq or self.kl_seq


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One trial: what was asked, what was measured, how it ended."""

    number: int
    attempt: int
    origin: str
    setting: TrialSpec
    sigma_r: float | None
    folder: Path
    checkpoints: tuple[Checkpoint, ...]
    curve: Curve
    outcome: TrialOutcome | None
    peak: Checkpoint | None
    """The checkpoint that the trial is judged by; of a trial without a verdict on it, the highest gold."""
    seconds: float
    cost: TrialCost
    warnings: tuple[Warned, ...] = ()
    score_errors: ScoreErrors | None = None
    damage: tuple[Damage, ...] = ()
    """Lines of its record that could not be read."""

    @property
    def state(self) -> TrialState:
        """What the trial is now."""
        return TrialState.RUNNING if self.outcome is None else STATE_OF[self.outcome.verdict.reason]

    @property
    def reason(self) -> StopReason | None:
        """Why it ended; none while it runs."""
        return None if self.outcome is None else self.outcome.verdict.reason

    @property
    def detail(self) -> str:
        """The guard's own words, verbatim."""
        return "" if self.outcome is None else self.outcome.verdict.detail

    @property
    def steps_run(self) -> int:
        """Training steps on record."""
        if self.outcome is not None:
            return self.outcome.steps_run
        return self.curve.step[-1] if self.curve.step else 0

    @property
    def value(self) -> float | None:
        """What Optuna was told."""
        return None if self.outcome is None else self.outcome.value

    @property
    def is_feasible(self) -> bool | None:
        """Whether the limits of the objective are respected; none where it was not judged."""
        return None if self.outcome is None else self.outcome.is_feasible

    @property
    def start(self) -> Checkpoint | None:
        """The evaluation before any training."""
        return self.checkpoints[0] if self.checkpoints and self.checkpoints[0].step == 0 else None

    @property
    def final(self) -> Checkpoint | None:
        """The last evaluation."""
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def gold_final(self) -> float | None:
        """Mean gold of the last two evaluations after step 0 (design.md §3); none before there is one."""
        last = [c.gold for c in self.checkpoints if c.step > 0][-2:]
        return sum(last) / len(last) if last else None

    @property
    def beta_range(self) -> tuple[float, float] | None:
        """Lowest and highest beta used, in the study's beta unit."""
        betas = [b for b in self.curve.beta if math.isfinite(b)]
        return (min(betas), max(betas)) if betas else None

    @property
    def is_candidate(self) -> bool:
        """Whether it may be recommended: it ran its course or was stopped by a guard, within the limits."""
        return (
            self.state is TrialState.COMPLETE
            and self.is_feasible is True
            and self.value is not None
            and self.peak is not None
        )


@dataclass(frozen=True, slots=True)
class StudyRows:
    """A study as the report sees it."""

    path: Path
    spec: StudySpec
    environment: Mapping[str, Any]
    reference: Mapping[str, Any]
    timing: Mapping[str, Any]
    trials: tuple[TrialRow, ...]
    is_running: bool | None = None
    """Whether a process works in the folder; None where that can't be seen."""

    @property
    def sigma_r(self) -> float | None:
        """Group standard deviation of the proxy under the reference, raw reward."""
        value = self.reference.get("sigma_r")
        return float(value) if isinstance(value, int | float) else None

    @property
    def beta_unit_words(self) -> str:
        """The unit of beta under the penalties that were tried."""
        tried = [row.setting.penalty for row in self.trials]
        return beta_unit_words(self.spec.beta_unit, self.spec.trainer.credit, *tried)

    def of_state(self, state: TrialState) -> tuple[TrialRow, ...]:
        """The trials in one state."""
        return tuple(t for t in self.trials if t.state is state)


def read_study(study_path: Path) -> StudyRows:
    """Read everything the report needs.

    Raises:
        StudyError: The folder is not a study (it has no resolved.json).
    """
    if not (study_path / "resolved.json").is_file():
        raise StudyError(f"{study_path}: not a study folder (no resolved.json in it)")
    spec = from_resolved(read_json(study_path / "resolved.json"))
    rows = (trial_row(record, spec.objective, spec.kl_unit) for record in each_trial(study_path))
    return StudyRows(
        path=study_path,
        spec=spec,
        environment=_optional(study_path / "env.json"),
        reference=_optional(study_path / "reference.json"),
        timing=_optional(study_path / "timing.json"),
        trials=tuple(sorted(rows, key=lambda row: row.number)),
        is_running=is_at_work(study_path),
    )


def trial_row(record: TrialRecord, objective: ObjectiveSpec, unit: KLUnit) -> TrialRow:
    """One record as a row."""
    checkpoints = tuple(_checkpoint(row) for row in record.evals)
    return TrialRow(
        number=record.number,
        attempt=record.attempt,
        origin=record.origin,
        setting=record.setting,
        sigma_r=record.sigma_r,
        folder=record.folder,
        checkpoints=checkpoints,
        curve=_curve(record.steps),
        outcome=record.outcome,
        peak=_peak(checkpoints, record, objective, unit),
        seconds=seconds_in_slot([*record.steps, *record.evals, *record.events]),
        cost=trial_cost(record),
        warnings=record.warnings,
        score_errors=record.score_errors,
        damage=record.damage,
    )


def _optional(path: Path) -> Mapping[str, Any]:
    return read_json(path) if path.is_file() else {}


def _float(row: Mapping[str, Any], name: str) -> float:
    value = row.get(name)
    return float(value) if isinstance(value, int | float) else NAN


def _checkpoint(row: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(
        step=int(row["step"]),
        gold=_float(row, "eval/gold"),
        gold_se=_float(row, "eval/gold_se"),
        proxy=_float(row, "eval/proxy"),
        proxy_se=_float(row, "eval/proxy_se"),
        kl_token=_float(row, "eval/kl_token"),
        kl_seq=_float(row, "eval/kl_seq"),
        gold_by_prompt=tuple(
            NAN if g is None else float(g) for g in row.get("gold_by_prompt") or ()
        ),
        others=other_golds(row),
    )


def _curve(rows: Sequence[Mapping[str, Any]]) -> Curve:
    def column(name: str) -> tuple[float, ...]:
        return tuple(_float(row, name) for row in rows)

    def recorded(name: str) -> tuple[float, ...]:
        return column(name) if any(name in row for row in rows) else ()

    return Curve(
        step=tuple(int(row["step"]) for row in rows),
        kl_token=column("kl/exact_token"),
        kl_seq=column("kl/exact_seq"),
        proxy=column("train/proxy_mean"),
        beta=column("ctrl/beta"),
        coefficient=column("ctrl/coefficient"),
        target=column("ctrl/target"),
        touched={
            name: fmean([x for x in column(name) if math.isfinite(x)] or [0.0]) for name in TOUCHED
        },
        anchor_token=recorded("kl/anchor_token"),
        anchor_seq=recorded("kl/anchor_seq"),
    )


def _peak(
    checkpoints: Sequence[Checkpoint], record: TrialRecord, objective: ObjectiveSpec, unit: KLUnit
) -> Checkpoint | None:
    """The checkpoint the study judged by; of a trial that was not judged, the one it would be."""
    best_step = None if record.outcome is None else record.outcome.best_step
    if best_step is None:
        points = [point_of_row(row) for row in record.evals]
        best_step = judge_trial(points, objective, unit, 1, 1).best_step
    return next((c for c in checkpoints if c.step == best_step), None)
