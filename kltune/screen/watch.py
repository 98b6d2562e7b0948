"""Events of a study in, a live table or plain lines on stderr out. stdout is left alone.

Both classes satisfy kltune.study.observer.Observer and are context managers.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kltune.guard.alarm import Alarm
from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.screen.progress import Progress, Scope, SlotView
from kltune.study.observer import Admitted
from kltune.trial.outcome import STATE_OF, StopReason, TrialOutcome
from kltune.trial.words import (
    MISSING,
    beta_unit_words,
    both_units,
    duration,
    number,
    origin_words,
    score,
    setting_long,
    setting_short,
)


def open_screen(
    scope: Scope, *, is_plain: bool = False, stream: TextIO | None = None
) -> LiveScreen | PlainScreen:
    """A live table where ``stream`` (default: stderr) is a terminal; else plain lines.

    Plain too with ``is_plain``, NO_COLOR or TERM=dumb.
    """
    target = sys.stderr if stream is None else stream
    if is_plain or not takes_tables(target):
        return PlainScreen(scope, target)
    return LiveScreen(scope, Console(file=target))


def takes_tables(stream: TextIO) -> bool:
    """Whether a table that is drawn again and again can be read there: a terminal, not told to be plain."""
    is_dumb = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not is_dumb


class PlainScreen:
    """One line for each start, evaluation, warning and ending."""

    def __init__(
        self, scope: Scope, stream: TextIO, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.progress = Progress(scope, clock)
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def admitted(self, event: Admitted) -> None:
        """A trial entered a slot."""
        self.progress.admitted(event)
        scope = self.progress.scope
        how = (
            "starts"
            if event.step == 0
            else f"goes on from step {event.step} (attempt {event.attempt})"
        )
        setting = setting_long(event.setting, scope.beta_unit, scope.kl_unit, scope.credit)
        self._line(
            f"trial {event.trial_number} {how} in slot {event.slot} ({origin_words(event.origin)}): {setting}"
        )

    def stepped(self, metrics: StepMetrics) -> None:
        """A slot did one step: counted, not shown."""
        self.progress.stepped(metrics)

    def evaluated(self, metrics: EvalMetrics) -> None:
        """A slot was judged."""
        self.progress.evaluated(metrics)
        view = self.progress.slots.get(metrics.slot)
        beta = MISSING if view is None else number(_beta(view))
        self._line(
            f"trial {metrics.trial_number} step {metrics.step}/{self.progress.scope.steps}: gold "
            f"{score(metrics.gold, metrics.gold_se)}, proxy {score(metrics.proxy, metrics.proxy_se)}, KL "
            f"{both_units(metrics.kl_token, metrics.kl_seq)}, beta {beta}{_other_golds(metrics)}"
        )

    def warned(self, trial_number: int, alarm: Alarm) -> None:
        """A guard warned of a trial."""
        self.progress.warned(trial_number, alarm)
        self._line(warned_words(trial_number, alarm))

    def ended(self, outcome: TrialOutcome) -> None:
        """A trial left its slot."""
        self.progress.ended(outcome)
        words = ended_words(outcome, self.progress.scope.limits)
        self._line(f"{words} [{_counts(self.progress)}]")

    def _line(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()


class LiveScreen:
    """A table that is redrawn in place."""

    def __init__(
        self, scope: Scope, console: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.progress = Progress(scope, clock)
        self._lock = threading.RLock()  # rich redraws from a thread of its own
        self._live = Live(console=console, get_renderable=self.render, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def admitted(self, event: Admitted) -> None:
        """A trial entered a slot."""
        with self._lock:
            self.progress.admitted(event)

    def stepped(self, metrics: StepMetrics) -> None:
        """A slot did one step."""
        with self._lock:
            self.progress.stepped(metrics)

    def evaluated(self, metrics: EvalMetrics) -> None:
        """A slot was judged."""
        with self._lock:
            self.progress.evaluated(metrics)

    def warned(self, trial_number: int, alarm: Alarm) -> None:
        """A guard warned of a trial."""
        with self._lock:
            self.progress.warned(trial_number, alarm)

    def ended(self, outcome: TrialOutcome) -> None:
        """A trial left its slot."""
        with self._lock:
            self.progress.ended(outcome)

    def render(self) -> Group:
        """The table as it is now."""
        with self._lock:
            return render_progress(self.progress)


def render_progress(progress: Progress) -> Group:
    """Header, one row a slot, warnings of these, the last endings, the best so far."""
    scope = progress.scope
    head = Text(f"{scope.name}: {_counts(progress)}", style="bold", overflow="fold")
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True, header_style="dim")
    table.add_column("trial", justify="right", no_wrap=True)
    table.add_column("setting", no_wrap=True, overflow="ellipsis", ratio=1, min_width=9)
    for name in ("step", "proxy", "gold\n± s.e.", "KL nats\n/token", "KL nats\n/seq.", "beta"):
        table.add_column(name, justify="right", no_wrap=True)
    for _, view in sorted(progress.slots.items()):
        table.add_row(
            *(Text(cell, overflow="ellipsis", no_wrap=True) for cell in _slot_cells(progress, view))
        )
    penalties = [view.trial.setting.penalty for view in progress.slots.values()]
    beta_unit = beta_unit_words(scope.beta_unit, scope.credit, *penalties)
    unit = Text(f"beta in {beta_unit}; gold on select prompts", style="dim")
    warnings = [
        Text(warned_words(*warning), style="yellow", overflow="fold")
        for warning in progress.warnings
    ]
    endings = [Text(ended_words(o, scope.limits), overflow="fold") for o in progress.recent]
    best = Text(f"best so far: none within {scope.limits}", style="dim")
    if progress.best is not None:
        best = Text(
            f"best so far: trial {progress.best[0]}, value {score(progress.best[1])}",
            style="bold green",
        )
    return Group(head, table, unit, *warnings, *endings, best)


def ended_words(outcome: TrialOutcome, limits: str = "the KL limit") -> str:
    """An ending on one line, with the guard's own words; ``limits``: what a feasible trial respects."""
    state = STATE_OF[outcome.verdict.reason]
    words = f"trial {outcome.trial_number} {state.value} after {outcome.steps_run} steps"
    words += f" ({outcome.verdict.reason.value}): {outcome.verdict.detail}"
    if outcome.value is not None:
        words += f"; value {score(outcome.value)}"
        words += _broken_words(outcome, limits) if outcome.is_feasible is False else ""
    return words


def warned_words(trial_number: int, alarm: Alarm) -> str:
    """A warning on one line, in the guard's own words."""
    guard = alarm.verdict.reason.value
    return f"trial {trial_number} step {alarm.step}: warning ({guard}): {alarm.verdict.detail}"


def _broken_words(outcome: TrialOutcome, limits: str) -> str:
    """Which of several limits are broken is not known here, and a trial that diverged may be within all."""
    if outcome.verdict.reason is StopReason.DIVERGED:
        return ", not feasible"
    if limits.startswith(_SEVERAL):
        return f", not within all {limits}"
    return f", outside {limits}"


_SEVERAL = "the limits on "
"""How `kltune.trial.words.limit_words` begins where there are several."""


def _counts(progress: Progress) -> str:
    scope = progress.scope
    words = f"{progress.num_ended + progress.elsewhere}/{scope.trials} trials ended, {duration(progress.elapsed_s)} so far"
    left, pace = progress.left_s, progress.tokens_per_s
    if left is not None:
        words += f", about {duration(left)} left"
    return words if pace is None else f"{words}, {pace:,.0f} tokens/s"


def _slot_cells(progress: Progress, view: SlotView) -> tuple[str, ...]:
    judged, step = view.evaluation, view.metrics
    proxy = None if step is None else step.proxy
    return (
        str(view.trial.trial_number),
        setting_short(view.trial.setting, progress.scope.kl_unit),
        f"{view.step}/{progress.scope.steps}",
        MISSING if proxy is None else f"{proxy:.2f}",
        MISSING if judged is None else f"{judged.gold:.2f} ±{judged.gold_se:.2f}",
        MISSING if step is None else number(step.kl_token),
        MISSING if step is None else number(step.kl_seq),
        number(_beta(view)),
    )


def _other_golds(metrics: EvalMetrics) -> str:
    return "".join(f", {name} {score(o.mean, o.se)}" for name, o in metrics.others.items())


def _beta(view: SlotView) -> float:
    return view.trial.setting.beta if view.metrics is None else view.metrics.beta
