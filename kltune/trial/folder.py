"""A trial's folder: settings, metrics, samples and events in, the record on disk out.

``trials/00007/{config.json, metrics.jsonl, tokens.jsonl, evals.jsonl, samples.jsonl, outliers.jsonl,
events.jsonl, checkpoints/{last,best}/}``. Rows are only ever appended; a later attempt that repeats a
step wins when read (kltune.trial.record).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
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
from kltune.trial.disk import remove, sync_file, writing
from kltune.trial.inside import refuse_outside
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

    def checkpoints_to_resume(self) -> tuple[Path, ...]:
        """What the trial may go on from, the newest first; one that can't be used makes way for the next."""
        last = self.last_checkpoint
        return tuple(p for p in (last, last.with_name(f"{last.name}.old")) if p.exists())

    def drop_last(self) -> None:
        """Remove what only a trial that goes on needs; the adapter at the best evaluation stays."""
        for path in self.last_checkpoint.parent.glob("last*"):
            remove(path)

    def tidy(self) -> None:
        """Remove what a crash left half-written: at most the last and the best checkpoint stay."""
        for path in (*self.path.glob(".*.tmp"), *self.last_checkpoint.parent.glob("*.new")):
            remove(path)
        for old in self.last_checkpoint.parent.glob("*.old"):
            if old.with_suffix("").is_dir() and old.stem != "last":
                remove(old)  # of the last one it may yet be needed

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
        """Write what this attempt runs; ``sigma_r`` is in units of the proxy. What a crash left half-done goes.

        Raises:
            DiskError: it can't be written, as from every ``append_...`` here.
        """
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
        # What follows writes and removes there: not through a link that somebody put into a study.
        refuse_outside(self.study_path, self.path, self.last_checkpoint, self.best_adapter)
        with writing(self.path):
            write_json(self.path / CONFIG, config, is_durable=True)
        self.tidy()

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
            _append(self.path / TOKENS, [{**head, **_profile_row(metrics.profile)}])
        self._append_errors(metrics.score_errors, metrics.step, "training")
        _append(self.path / STEPS, [{**head, **values, **trl_names(values)}])

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
        self._append_errors(metrics.score_errors, metrics.step, "evaluation")
        # These first: whoever sees the evaluation's row finds its outliers and samples too.
        outliers = [{**head, **asdict(outlier)} for outlier in metrics.outliers]
        _append(self.path / OUTLIERS, outliers)
        _append(
            self.path / SAMPLES, [{**head, **_sample_row(sample)} for sample in metrics.samples]
        )
        by_prompt: dict[str, object] = {
            "gold_by_prompt": metrics.gold_by_prompt,
            "proxy_by_prompt": metrics.proxy_by_prompt,
        }
        if metrics.others:
            by_prompt["golds_by_prompt"] = {n: o.by_prompt for n, o in metrics.others.items()}
        _append(self.path / EVALS, [{**head, **values, **by_prompt}])
        # A checkpoint follows, which must not be on the disk without the curve that led to it.
        for name in (STEPS, EVALS):
            with writing(self.path / name):
                sync_file(self.path / name)

    def append_event(self, event: str, step: int, **fields: object) -> None:
        """Record that something happened after ``step`` steps."""
        _append(self.path / EVENTS, [{**self._head(step), "event": event, **fields}])

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

    def _append_errors(self, errors: Sequence[str], step: int, during: str) -> None:
        """Record on how many completions the proxy failed, and a few of them."""
        if errors:
            shown = [text[:_SHOWN_CHARS] for text in errors[:_SHOWN_ERRORS]]
            self.append_event(
                "score_errors", step, count=len(errors), examples=shown, during=during
            )

    def _head(self, step: int) -> dict[str, object]:
        return {
            "trial": self.trial_number,
            "attempt": self.attempt,
            "step": step,
            "time": round(time.time(), 3),
        }


def _append(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    with writing(path):
        append_rows(path, rows)


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
