"""A trial's folder: settings, metrics, samples and events in, the record on disk out.

``trials/00007/{config.json, metrics.jsonl, tokens.jsonl, evals.jsonl, samples.jsonl, outliers.jsonl,
events.jsonl, checkpoints/{last,best}/}``. Rows are only ever appended; a later attempt that repeats a
step wins when read (kltune.trial.record).
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kltune.metrics.gold_names import gold_metric
from kltune.metrics.jsonl import append_rows, write_json
from kltune.metrics.names import check_names, trl_names
from kltune.metrics.record import EvalMetrics, EvalSample, StepMetrics, TokenProfile
from kltune.metrics.rows import CONFIG, EVALS, EVENTS, OUTLIERS, SAMPLES, STEPS, TOKENS
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec
from kltune.trial.outcome import STATE_OF, TrialOutcome

_SHOWN_ERRORS: Final = 3
_SHOWN_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class TrialFolder:
    """Where one attempt of a trial writes."""

    study_path: Path
    trial_number: int
    attempt: int
    """1 for the first attempt of the trial."""
    under: str = "trials"
    """The folder of such folders."""
    name: str | None = None
    """Of the trial's folder; none: the trial's number."""

    @property
    def path(self) -> Path:
        """The trial's folder, the same for every attempt."""
        return self.study_path / self.under / (self.name or f"{self.trial_number:05d}")

    @property
    def last_checkpoint(self) -> Path:
        """Folder from which the trial continues."""
        return self.path / "checkpoints" / "last"

    def checkpoint_to_resume(self) -> Path | None:
        """The last checkpoint, or the one before it where a crash hit the moment between two renames."""
        last = self.last_checkpoint
        before = last.with_name(last.name + ".old")
        return next((path for path in (last, before) if path.is_dir()), None)

    @property
    def best_adapter(self) -> Path:
        """Folder of the adapter at the best evaluation that respects the limit."""
        return self.path / "checkpoints" / "best"

    def write_config(
        self,
        setting: TrialSpec,
        origin: str,
        sigma_r: float | None,
        kl_unit: KLUnit,
        beta_unit: BetaUnit,
    ) -> None:
        """Write what this attempt runs; ``sigma_r`` is in units of the proxy."""
        config = {
            "trial": self.trial_number,
            "attempt": self.attempt,
            "origin": origin,
            "setting": setting.model_dump(mode="json"),
            "sigma_r": sigma_r,
            "kl_unit": kl_unit,
            "beta_unit": beta_unit,
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_json(self.path / CONFIG, config)

    def append_step(self, metrics: StepMetrics) -> None:
        """Record one step; raises `ValueError` for a metric that is not registered."""
        values = {
            "kl/exact_token": metrics.kl_token,
            "kl/exact_seq": metrics.kl_seq,
            "train/proxy_mean": metrics.proxy,
            "ctrl/beta": metrics.beta,
            "tokens/step": metrics.tokens,
            **metrics.values,
        }
        check_names(values)
        head = self._head(metrics.step)
        # The profile first: whoever sees the step's row finds its profile too.
        if metrics.profile is not None:
            append_rows(self.path / TOKENS, [{**head, **_profile_row(metrics.profile)}])
        if metrics.score_errors:
            shown = [text[:_SHOWN_CHARS] for text in metrics.score_errors[:_SHOWN_ERRORS]]
            self.append_event(
                "score_errors", metrics.step, count=len(metrics.score_errors), examples=shown
            )
        append_rows(self.path / STEPS, [{**head, **values, **trl_names(values)}])

    def append_eval(self, metrics: EvalMetrics) -> None:
        """Record one evaluation, the samples that it kept and its outlier tokens."""
        values = {
            "eval/gold": metrics.gold,
            "eval/gold_se": metrics.gold_se,
            "eval/proxy": metrics.proxy,
            "eval/proxy_se": metrics.proxy_se,
            "eval/kl_token": metrics.kl_token,
            "eval/kl_seq": metrics.kl_seq,
            **{gold_metric(name): other.mean for name, other in metrics.others.items()},
            **{f"{gold_metric(name)}_se": other.se for name, other in metrics.others.items()},
            **metrics.values,
        }
        check_names(values)
        head = self._head(metrics.step)
        # These first: whoever sees the evaluation's row finds its outliers and samples too.
        outliers = [{**head, **asdict(outlier)} for outlier in metrics.outliers]
        append_rows(self.path / OUTLIERS, outliers)
        append_rows(
            self.path / SAMPLES, [{**head, **_sample_row(sample)} for sample in metrics.samples]
        )
        by_prompt: dict[str, object] = {
            "gold_by_prompt": metrics.gold_by_prompt,
            "proxy_by_prompt": metrics.proxy_by_prompt,
        }
        if metrics.others:
            by_prompt["golds_by_prompt"] = {n: o.by_prompt for n, o in metrics.others.items()}
        append_rows(self.path / EVALS, [{**head, **values, **by_prompt}])

    def append_event(self, event: str, step: int, **fields: object) -> None:
        """Record that something happened after ``step`` steps."""
        append_rows(self.path / EVENTS, [{**self._head(step), "event": event, **fields}])

    def append_warning(self, guard: str, detail: str, first_step: int, step: int) -> None:
        """Record that ``guard`` warned after ``step`` steps of what began at ``first_step``."""
        self.append_event("warning", step, guard=guard, detail=detail, first_step=first_step)

    def append_outcome(self, outcome: TrialOutcome) -> None:
        """Record the end of this attempt."""
        reason = outcome.verdict.reason
        self.append_event(
            "ended",
            outcome.steps_run,
            reason=reason,
            detail=outcome.verdict.detail,
            state=STATE_OF[reason],
            steps_run=outcome.steps_run,
            value=outcome.value,
            feasible=outcome.is_feasible,
            constraint=outcome.constraint,
            best_step=outcome.best_step,
        )

    def _head(self, step: int) -> dict[str, object]:
        return {
            "trial": self.trial_number,
            "attempt": self.attempt,
            "step": step,
            "time": round(time.time(), 3),
        }


def as_recorded(profile: TokenProfile) -> TokenProfile:
    """Four digits are enough to see where, and a quarter of the bytes."""
    return replace(profile, kl=tuple(float(f"{value:.4g}") for value in profile.kl))


def _profile_row(profile: TokenProfile) -> dict[str, object]:
    return {
        "edges": profile.edges,
        "kl_by_position": as_recorded(profile).kl,
        "tokens_by_position": profile.tokens,
    }


def _sample_row(sample: EvalSample) -> dict[str, object]:
    """The fields of a sample; where there are no further golds, none are spoken of."""
    row = asdict(sample)
    if not sample.golds:
        del row["golds"]
    return row
