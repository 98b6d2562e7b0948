"""A base and a spec in, the bank that does most trial-steps per second out: a few steps of a scratch trial are timed.

The rules are in kltune.launch.placement; here is what measures for them. Streams are keyed by
trial, step and row, so steps of a scratch trial move nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kltune.errors import KltuneError, RunError
from kltune.launch.assemble import Ground, build_bank, slots_of_device
from kltune.launch.kept_placement import (
    keep_choice,
    kept_choices,
    placement_of,
    still_holds,
)
from kltune.launch.placement import (
    Calibration,
    Machine,
    Placement,
    Promise,
    Wish,
    alone,
    is_gain,
    processes_that_fit,
    slots_of,
    spread,
)
from kltune.launch.saying import say
from kltune.launch.stopwatch import peak_gflops, process_bytes, step_seconds
from kltune.launch.threads import allowed_threads, available_memory, torch_threads
from kltune.launch.worker import Worker, WorkerDiedError
from kltune.launch.worker_bank import WorkerBank, start_all
from kltune.launch.worker_process import Job
from kltune.metrics.record import RewardScale
from kltune.spec.load import LoadedSpec
from kltune.spec.study import StudySpec
from kltune.spec.trial import TrialSpec
from kltune.study.space import setting_of
from kltune.tasks.protocol import Scorer
from kltune.trainer.protocol import TrialBank


@dataclass(frozen=True, slots=True)
class Site:
    """What a bank is built from, and where its trials run."""

    spec: LoadedSpec
    ground: Ground
    scale: RewardScale
    study_path: Path | None
    """A learned proxy and the placement of earlier sessions lie here."""
    stand_in: Scorer | None = None
    """In place of a proxy that has yet to be learned."""
    should_stop: Callable[[], str | None] = lambda: None
    """Asked before what takes long."""
    beside: int = 0
    """Further members of the study that compute on this machine."""

    def bank(self, placement: Placement) -> TrialBank:
        """This process's own."""
        return build_bank(self.ground, self.spec.spec, self.scale, slots_of(0, placement))

    def scratch(self) -> TrialSpec:
        """A setting whose steps are timed."""
        return setting_of({"beta": 0.0}, self.spec.spec)

    def wish(self) -> Wish:
        """What the spec asks for."""
        spec = self.spec.spec
        budget = spec.budget
        return Wish(budget.slots, budget.workers, budget.trials, spec.model.finetune == "full")

    def machine(self) -> Machine:
        """What is there."""
        device = self.ground.loaded.device.type
        threads = allowed_threads()
        if self.beside and device == "cpu" and "OMP_NUM_THREADS" not in os.environ:
            threads = max(1, threads // (1 + self.beside))
        return Machine(device, threads, slots_of_device(self.spec.spec, self.ground))


@contextmanager
def placed_bank(
    site: Site, *, is_kept: bool = True, is_over: bool = False
) -> Generator[tuple[TrialBank, Calibration]]:
    """A bank over as many processes as do best, for as long as the block lasts.

    ``is_kept``: the choice is written into the study folder. Nothing is timed beside other members of the study:
    the cores are shared by what they are for. ``is_over``: no trial is left to
    run, so nothing is measured or started.

    Raises:
        RunError: workers that the spec asks for by number, or that an earlier session chose, can't start.
    """
    with ExitStack() as held:
        facts = _facts(site)  # before threads are given to workers
        known = _known(site, facts)
        if is_over:
            one = alone(site.wish(), site.machine())
            yield site.bank(one), known or Calibration(one, None, None, None)
            return
        if known is None and site.beside:
            bank, calibration = _shared(site, held)
        else:
            bank, calibration = (
                _measured(site, held) if known is None else _again(site, known, held)
            )
        is_stopped = site.should_stop() is not None
        if is_kept and not site.beside and not is_stopped and site.study_path is not None:
            keep_choice(site.study_path, calibration, facts)
        if calibration.placement.workers == 1:
            held.enter_context(torch_threads(calibration.placement.threads))
        yield bank, calibration


def _shared(site: Site, held: ExitStack) -> tuple[TrialBank, Calibration]:
    """Beside other members of the study, whose steps would disturb what is timed, and be disturbed by it."""
    wish, machine = site.wish(), site.machine()
    one = alone(wish, machine)
    most = None if wish.workers == "auto" else spread(wish, machine, fitting=machine.threads)
    calibration = Calibration(one if most is None else most, None, None, None)
    say(f"{calibration.placement.describe()}, beside {site.beside} more on this machine")
    if most is None:
        return site.bank(one), calibration
    return _started(site, most, held), calibration


def _measured(site: Site, held: ExitStack) -> tuple[TrialBank, Calibration]:
    """Choose by timing, where there is a choice."""
    wish, machine = site.wish(), site.machine()
    one = alone(wish, machine)
    peak = peak_gflops(site.ground.loaded.device.type)
    most = spread(wish, machine, fitting=machine.threads)
    if most is None:
        return site.bank(one), Calibration(one, None, None, peak)
    if wish.workers != "auto":
        if wish.workers > machine.threads:
            threads = f"{machine.threads} thread{'s' * (machine.threads > 1)}"
            say(
                f"note: budget.workers: {wish.workers} share {threads}, all that this process may use "
                "(its cores, or fewer by OMP_NUM_THREADS)"
            )
        return _started(site, most, held), Calibration(most, None, None, peak)
    try:
        timed = _Timed.of(site, one)
        found = timed.tried(held)
    except (KltuneError, RuntimeError, MemoryError) as error:
        say(f"{one.describe()}: several could not be timed ({error})")
        return site.bank(one), Calibration(one, None, None, peak)
    if found is None:
        return site.bank(one), Calibration(one, timed.alone_s, timed.alone_s, peak)
    bank, placement, placed_s = found
    return bank, Calibration(placement, timed.alone_s, placed_s, peak)


@dataclass(frozen=True, slots=True)
class _Timed:
    """One process was timed; several are tried against it."""

    site: Site
    one: Placement
    alone_s: float

    @classmethod
    def of(cls, site: Site, one: Placement) -> _Timed:
        with torch_threads(one.threads):
            return cls(site, one, step_seconds(site.bank(one), site.scratch()))

    def tried(self, held: ExitStack) -> tuple[TrialBank, Placement, float] | None:
        """The bank of several workers and its seconds per trial-step; none where one does as well."""
        site = self.site
        fitting = processes_that_fit(process_bytes(), available_memory())
        placement = spread(site.wish(), site.machine(), fitting)
        if placement is None:
            say(f"{self.one.describe()}: more would not fit in memory")
            return None
        if site.should_stop() is not None:
            return None
        with torch_threads(placement.threads):
            few_s = step_seconds(site.bank(placement), site.scratch())
        promise = Promise(self.alone_s, few_s, placement.workers, _trial_steps(site.spec.spec))
        if not promise.is_worth_a_try() or site.should_stop() is not None:
            self._say_one(placement, promise.placed_s, "would take at best")
            return None
        with ExitStack() as trial:
            bank = _started(site, placement, trial)
            placed_s = step_seconds(bank, site.scratch())
            if is_gain(self.alone_s, placed_s):
                held.push(trial.pop_all())
                say(
                    f"{placement.describe()}: {placed_s:.3g} s per trial-step against "
                    f"{self.alone_s:.3g} s alone"
                )
                return bank, placement, placed_s
        self._say_one(placement, placed_s, "take")
        return None

    def _say_one(self, placement: Placement, seconds: float, verb: str) -> None:
        say(
            f"{self.one.describe()}: {self.alone_s:.3g} s per trial-step "
            f"({placement.describe()} {verb} {seconds:.3g} s)"
        )


def _trial_steps(spec: StudySpec) -> float:
    """Of the whole study, its evaluations by the completions that they draw."""
    trainer, judged = spec.trainer, spec.evaluate
    evaluations = 1 + -(-trainer.steps // judged.every)
    per_evaluation = judged.prompts * judged.samples / trainer.rows
    return spec.budget.trials * (trainer.steps + evaluations * per_evaluation)


def _started(site: Site, placement: Placement, held: ExitStack) -> WorkerBank:
    """Start the processes, wait for them, and join them to one bank."""

    def start(number: int, slots: int) -> Worker:
        judged_on = site.ground.judged_on
        job = Job(site.spec, site.study_path, site.scale, slots, site.stand_in, judged_on)
        return Worker(number, placement.threads, job)

    try:
        bank = start_all(placement, start)
    except WorkerDiedError as died:
        raise RunError(f"{died} while it started; budget.workers: 1 does without") from died
    return held.enter_context(closing(bank))


def _again(site: Site, known: Calibration, held: ExitStack) -> tuple[TrialBank, Calibration]:
    placement = known.placement
    if placement.workers == 1:
        return site.bank(placement), known
    say(f"{placement.describe()}, as before")
    return _started(site, placement, held), known


def _facts(site: Site) -> dict[str, Any]:
    """What a choice was made for: another wish or machine calls for another choice."""
    wish, machine = site.wish(), site.machine()
    most = spread(wish, machine, fitting=machine.threads)
    return {
        "device": machine.device,
        "cores": machine.threads,
        "asked": {"slots": wish.slots, "workers": wish.workers},
        "considered": asdict(alone(wish, machine) if most is None else most),
    }


def _known(site: Site, facts: Mapping[str, Any]) -> Calibration | None:
    """What an earlier session chose, where it still holds here."""
    kept = kept_choices(site.study_path)
    for one in kept:
        if still_holds(one, facts):
            return Calibration(
                placement_of(one), one["alone_step_s"], one["placed_step_s"], one["peak_gflops"]
            )
    if kept and not site.beside:
        before = placement_of(kept[0]).describe()
        say(f"{before} before; this machine or budget is another, so it is chosen anew")
    return None
