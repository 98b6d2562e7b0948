"""A bank of one slot and a recorded trial in; the trial trained again, its rows and its trace on disk, out.

The order of events is that of the search: an evaluation where one is due, guards, a step, guards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kltune.guard.alarm import Action, Alarm
from kltune.guard.evaluations import evaluation_alarms
from kltune.guard.judge import step_alarms
from kltune.launch.replay import ReplayPlan
from kltune.launch.saying import say
from kltune.metrics.jsonl import read_rows_from, write_json
from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.metrics.rows import EVALS, STEPS, Row
from kltune.metrics.trace import StepTrace
from kltune.replay.checks import check_trace
from kltune.replay.compare import Kind, compare_row
from kltune.replay.plain_text import render_text
from kltune.replay.result import Traced
from kltune.replay.trace_document import loss_line, trace_document
from kltune.replay.trace_facts import trace_facts
from kltune.report.page import render_page
from kltune.trainer.bank import Bank
from kltune.trial.folder import TrialFolder
from kltune.trial.objective import EvalPoint, point_of
from kltune.trial.outcome import StopReason, TrialOutcome, Verdict
from kltune.trial.words import both_units, number, score

SLOT = 0


class Rerun:
    """A trial that runs again in the only slot of a bank."""

    def __init__(self, plan: ReplayPlan, bank: Bank, folder: TrialFolder) -> None:
        """Nothing is run or written yet."""
        self.folder = folder
        self.step = 0
        self.traced: Traced | None = None
        self._plan = plan
        self._bank = bank
        self._history: list[StepMetrics] = []
        self._points: list[EvalPoint] = []
        self._warned: set[StopReason] = set()
        self._recorded: Mapping[Kind, Mapping[int, Row]] = {
            "step": {int(row["step"]): row for row in plan.record.steps},
            "evaluation": {int(row["step"]): row for row in plan.record.evals},
        }
        self._read_to: dict[Kind, int] = {"step": 0, "evaluation": 0}
        self._has_parted = False

    def start(self, sigma_r: float) -> None:
        """Put the recorded setting into the slot."""
        record, spec = self._plan.record, self._plan.spec.spec
        self.folder.write_config(
            record.setting, record.origin, sigma_r, spec.kl_unit, spec.beta_unit
        )
        self.folder.append_event("started", 0)
        self._bank.admit(SLOT, record.number, record.setting, None)

    def run(self, stop: Callable[[], str | None]) -> Verdict:
        """Train and judge until the last step, a guard's stop, or ``stop`` names a reason.

        Raises:
            TrialFault: a scorer failed, or memory ran out.
        """
        while True:
            if self._is_due() and (verdict := self._evaluate()) is not None:
                return verdict
            if self.step >= self._plan.steps:
                return Verdict(StopReason.DONE, f"ran {self.step} steps again")
            if (reason := stop()) is not None:
                return Verdict(StopReason.INTERRUPTED, reason)
            if (verdict := self._train()) is not None:
                if verdict.reason is not StopReason.DIVERGED and not self._is_judged():
                    self._evaluate()
                return verdict

    def end(self, verdict: Verdict) -> None:
        """Note the end, and keep what continues the trial."""
        self._bank.save_checkpoint(SLOT, self.folder.last_checkpoint)
        self.folder.append_outcome(
            TrialOutcome(
                trial_number=self._plan.record.number,
                attempt=self.folder.attempt,
                verdict=verdict,
                steps_run=self.step,
                value=None,  # nothing is told to a search
                is_feasible=None,
                constraint=None,
                best_step=None,
            )
        )

    def _is_due(self) -> bool:
        """Where the search evaluates, where the record did, and at the end."""
        spec = self._plan.spec.spec
        is_last = self.step in (self._plan.steps, spec.trainer.steps)
        is_recorded = self.step in self._recorded["evaluation"]
        return self.step % spec.evaluate.every == 0 or is_last or is_recorded

    def _is_judged(self) -> bool:
        return bool(self._points) and self._points[-1].step == self.step

    def _train(self) -> Verdict | None:
        if self._plan.request.trace == self.step + 1:
            metrics, trace = self._bank.traced_step(SLOT)
            self._write_trace(metrics, trace)
        else:
            (metrics,) = self._bank.train_step()
        self.step = metrics.step
        self._history.append(metrics)
        self.folder.append_step(metrics)
        self._follow("step", self.folder.path / STEPS)
        return self._heed(step_alarms(self._plan.spec.spec, self._history))

    def _evaluate(self) -> Verdict | None:
        (metrics,) = self._bank.evaluate((SLOT,))
        self.folder.append_eval(metrics)
        self._points.append(point_of(metrics))
        self._say(metrics)
        self._follow("evaluation", self.folder.path / EVALS)
        if not self._history:
            return None
        return self._heed(evaluation_alarms(self._plan.spec.spec, self._history, self._points))

    def _heed(self, alarms: Sequence[Alarm]) -> Verdict | None:
        """The verdict of a guard that ends the trial here; what only warns is noted once."""
        for alarm in alarms:
            reason = alarm.verdict.reason
            # A step that is not finite changed nothing: going on would repeat it for ever.
            is_final = reason is StopReason.DIVERGED or not self._plan.only_warns
            if alarm.action is Action.STOP and is_final:
                return alarm.verdict
            if reason not in self._warned:
                self._warned.add(reason)
                detail = alarm.verdict.detail
                self.folder.append_warning(reason.value, detail, alarm.first_step, alarm.step)
                say(f"guard {reason.value}: {detail}")
        return None

    def _follow(self, kind: Kind, path: Path) -> None:
        """Say where the replay parts from the record, once."""
        rows, self._read_to[kind] = read_rows_from(path, self._read_to[kind])
        for row in rows:
            recorded = self._recorded[kind].get(int(row["step"]))
            if recorded is None or self._has_parted:
                continue
            compared = compare_row(kind, recorded, row)
            if not compared.is_same:
                self._has_parted = True
                worst = compared.differences[0]
                say(
                    f"parts from the record at {compared.place()}: {worst.name} was "
                    f"{number(worst.recorded, 9)}, is {number(worst.replayed, 9)}"
                )

    def _say(self, metrics: EvalMetrics) -> None:
        recorded = self._recorded["evaluation"].get(metrics.step)
        beside = "" if recorded is None else f" (record {score(recorded.get('eval/gold'))})"
        say(
            f"step {metrics.step}/{self._plan.steps}: gold {score(metrics.gold, metrics.gold_se)}{beside}, "
            f"KL {both_units(metrics.kl_token, metrics.kl_seq)}"
        )

    def _write_trace(self, metrics: StepMetrics, trace: StepTrace) -> None:
        recorded = self._recorded["step"].get(trace.step, {}).get("train/loss")
        loss = float(recorded) if isinstance(recorded, int | float) else None
        values = {
            "kl/exact_token": metrics.kl_token,
            "kl/exact_seq": metrics.kl_seq,
            **metrics.values,
        }
        checks = check_trace(trace, values)
        name = f"Trial {trace.trial} of {self._plan.spec.spec.name}"
        document = trace_document(name, trace, checks, loss)
        files = tuple(self.folder.path / f"trace.{ending}" for ending in ("json", "txt", "html"))
        write_json(files[0], trace_facts(trace, values, checks, loss))
        files[1].write_text(render_text(document), encoding="utf-8")
        files[2].write_text(render_page(document), encoding="utf-8")
        self.traced = Traced(
            step=trace.step,
            files=files,
            line=loss_line(trace, loss),
            sums=len(checks),
            wrong=tuple(check.name for check in checks if not check.is_equal),
        )
