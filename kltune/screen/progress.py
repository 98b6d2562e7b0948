"""Events of a study in, the state that the screen shows out: slots, pace, time left, best so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kltune.guard.alarm import Alarm
from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.spec.algorithm import Credit
from kltune.spec.trial import BetaUnit, KLUnit
from kltune.study.observer import Admitted
from kltune.trial.outcome import STATE_OF, TrialOutcome, TrialState

RECENT = 4
"""Ended trials that stay in sight, and warnings of running ones."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What the screen needs to know of a study before its first event."""

    name: str
    trials: int
    """In total, those of earlier sessions included."""
    steps: int
    """Of a full trial."""
    kl_unit: KLUnit
    beta_unit: BetaUnit
    ended_before: int = 0
    """Trials that ended in earlier sessions."""
    best_before: tuple[int, float] | None = None
    """Number and value of their best feasible one."""
    credit: Credit = "sequence"
    """Which tokens pay for a KL in the reward: the unit of beta depends on it."""
    limits: str = "the KL limit"
    """What a checkpoint must respect, in words."""


@dataclass(slots=True)
class SlotView:
    """One slot, as last heard of."""

    trial: Admitted
    step: int
    metrics: StepMetrics | None = None
    evaluation: EvalMetrics | None = None


@dataclass(slots=True)
class Progress:
    """The search so far."""

    scope: Scope
    clock: Callable[[], float]
    """Seconds, monotonic."""
    slots: dict[int, SlotView] = field(default_factory=dict[int, SlotView])
    warnings: deque[tuple[int, Alarm]] = field(
        default_factory=lambda: deque[tuple[int, Alarm]](maxlen=RECENT)
    )
    """Trial number and what a guard warned of, the latest last; of trials that run."""
    recent: deque[TrialOutcome] = field(default_factory=lambda: deque[TrialOutcome](maxlen=RECENT))
    num_ended: int = 0
    """Before this session, and in it by this process."""
    elsewhere: int = 0
    """Ended in this session by other processes on the study, so far as is known."""
    best: tuple[int, float] | None = None
    tokens: int = 0
    steps: int = 0
    ended_steps: int = 0
    started: float = field(init=False)
    first_step: float | None = None
    """When the first step of this session was done; what came before is no pace."""

    def __post_init__(self) -> None:
        """Start the clock."""
        self.started = self.clock()
        self.num_ended = self.scope.ended_before
        self.best = self.scope.best_before

    def admitted(self, event: Admitted) -> None:
        """A trial entered a slot."""
        self.slots[event.slot] = SlotView(event, event.step)

    def stepped(self, metrics: StepMetrics) -> None:
        """A slot did one step."""
        self.tokens += metrics.tokens
        self.steps += 1
        if self.first_step is None:
            self.first_step = self.clock()
        view = self.slots.get(metrics.slot)
        if view is not None:
            view.step, view.metrics = metrics.step, metrics

    def evaluated(self, metrics: EvalMetrics) -> None:
        """A slot was judged."""
        view = self.slots.get(metrics.slot)
        if view is not None:
            view.evaluation = metrics

    def warned(self, trial_number: int, alarm: Alarm) -> None:
        """A guard warned of a trial."""
        self.warnings.append((trial_number, alarm))

    def ended(self, outcome: TrialOutcome) -> SlotView | None:
        """A trial left its slot; gives what was in it."""
        state = STATE_OF[outcome.verdict.reason]
        held = next(
            (s for s, v in self.slots.items() if v.trial.trial_number == outcome.trial_number), None
        )
        self.recent.append(outcome)
        for warning in [w for w in self.warnings if w[0] == outcome.trial_number]:
            self.warnings.remove(warning)
        if state is not TrialState.INTERRUPTED:
            self.num_ended += 1
            self.ended_steps += outcome.steps_run
        is_candidate = state is TrialState.COMPLETE and outcome.is_feasible is True
        if (
            is_candidate
            and outcome.value is not None
            and (self.best is None or outcome.value > self.best[1])
        ):
            self.best = (outcome.trial_number, outcome.value)
        return None if held is None else self.slots.pop(held)

    @property
    def elapsed_s(self) -> float:
        """Seconds of this session."""
        return self.clock() - self.started

    @property
    def tokens_per_s(self) -> float | None:
        """Completion tokens per second of this session, evaluations and all else included in the time."""
        return self.tokens / self.elapsed_s if self.tokens and self.elapsed_s > 0 else None

    @property
    def left_s(self) -> float | None:
        """Seconds left at the measured pace; a coming trial counts as many steps as the ended ones took.

        None before a trial's worth of steps is known, where others work too, and where nothing is left.
        """
        ended_here = self.num_ended - self.scope.ended_before
        timed = self.steps - 1
        if self.elsewhere:
            return None  # the pace of others is not known here
        if self.first_step is None or timed < 1 or (not ended_here and timed < self.scope.steps):
            return None
        usual = self.ended_steps / ended_here if ended_here else self.scope.steps
        coming = max(0, self.scope.trials - self.num_ended - len(self.slots))
        running = sum(max(0, self.scope.steps - view.step) for view in self.slots.values())
        left = running + coming * usual
        return left * (self.clock() - self.first_step) / timed if left > 0 else None
