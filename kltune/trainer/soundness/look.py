"""A bank of a study's own model and task in, everything that the probes find out: the order they run in."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kltune.spec.study import StudySpec
from kltune.spec.trial import TrialSpec
from kltune.tasks.protocol import Sample, Scorer
from kltune.trainer.bank import Bank
from kltune.trainer.data import TaskData
from kltune.trainer.logprobs import Logprobs
from kltune.trainer.soundness.drawn import Drawn, draw, draw_step, start_setting, trainer_logprobs
from kltune.trainer.soundness.dropout import dropout_facts
from kltune.trainer.soundness.facts import CheapSoundness, Soundness
from kltune.trainer.soundness.fixed_point import step_twice
from kltune.trainer.soundness.independent import oracle_facts
from kltune.trainer.soundness.masks import mask_facts
from kltune.trainer.soundness.memory import memory_facts
from kltune.trainer.soundness.padding import padding_facts
from kltune.trainer.soundness.reference import reference_facts
from kltune.trainer.soundness.sampler import sampler_facts
from kltune.trainer.soundness.score_facts import ScoringFacts
from kltune.trainer.soundness.scorers import scoring_facts
from kltune.trainer.soundness.tokens import refuse_unreadable, stop_facts, token_facts


@dataclass(frozen=True, slots=True)
class StandIn:
    """Scores where the proxy can't: by length, so that a step has something to learn."""

    name: str = "length"

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        """Tokens of each completion."""
        return [float(len(sample.token_ids)) for sample in samples]


@dataclass(frozen=True, slots=True)
class _Start:
    """What both looks begin with."""

    setting: TrialSpec
    drawn: Drawn
    found: Logprobs
    """The trainer's numbers at these completions, under the start policy."""
    scoring: ScoringFacts


def look(
    bank: Bank,
    spec: StudySpec,
    *,
    slots: int = 1,
    samples: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Soundness:
    """Run every probe in slot 0 of ``bank``, which must be free and is empty again afterwards.

    ``slots``: trials at once that the memory is reckoned for. ``samples``: completions that are drawn;
    none: those of a step, 32 or more. ``say`` is told what comes next.

    Raises:
        TrialFault: memory ran out. (What is wrong with a scorer is in its facts.)
        SpecError: the model can't even read the prompts' ids.
    """
    with _occupied(bank, start_setting(spec)):
        say("drawing completions of the start policy and scoring them ...")
        start = _start(bank, spec, samples)
        drawn, found = start.drawn, start.found
        tokens, stops = token_facts(bank, spec.model, drawn, found), stop_facts(bank, drawn)
        reference = reference_facts(bank, drawn, found)
        dropout = dropout_facts(bank, drawn, start.scoring.proxy.repeats)
        say("one training step at learning rate 0 and one at the real rate ...")
        step = draw_step(bank, start.setting.seed)
        with _able_proxy(bank, start.scoring):
            stepped = step_twice(bank, start.setting, drawn, found)
        say("log-probs a second time: by a plain forward, alone, padded, beside neighbours ...")
        moved = draw(bank, spec.seed, samples)
        moved_found = trainer_logprobs(bank, moved.rollout)
        return Soundness(
            tokens=tokens,
            stops=stops,
            padding=padding_facts(bank, moved),
            reference=reference,
            fixed_point=stepped.facts,
            sampler=sampler_facts((drawn, found), (moved, moved_found)),
            oracle=oracle_facts(bank, moved, moved_found),
            dropout=dropout,
            masks=mask_facts(bank, drawn, found, (step, stepped.metrics.values["tokens/step"])),
            memory=memory_facts(bank, moved, slots, stepped.peak),
            scoring=start.scoring,
            unread_weights=bank.parts.loaded.unread_weights,
        )


def look_cheaply(bank: Bank, spec: StudySpec, *, samples: int | None = None) -> CheapSoundness:
    """Run the probes that need no training step; ``bank`` and ``samples`` as in :func:`look`."""
    with _occupied(bank, start_setting(spec)):
        start = _start(bank, spec, samples)
        drawn, found = start.drawn, start.found
        return CheapSoundness(
            tokens=token_facts(bank, spec.model, drawn, found),
            stops=stop_facts(bank, drawn),
            reference=reference_facts(bank, drawn, found),
            masks=mask_facts(bank, drawn, found, None),
            scoring=start.scoring,
        )


def golds_of(data: TaskData) -> Mapping[str, Scorer]:
    """Every gold by its field, the objective's own first."""
    return {"task.gold": data.gold, **{f"task.golds.{n}": g for n, g in data.golds.items()}}


def _start(bank: Bank, spec: StudySpec, samples: int | None) -> _Start:
    data = bank.parts.data
    refuse_unreadable(bank)
    drawn = draw(bank, spec.seed, samples)
    scoring = scoring_facts(drawn.samples, drawn.group_size, data.proxy, golds_of(data))
    return _Start(start_setting(spec), drawn, trainer_logprobs(bank, drawn.rollout), scoring)


@contextmanager
def _occupied(bank: Bank, setting: TrialSpec) -> Generator[None]:
    """Slot 0 with a fresh trial, whatever the probes put there in between."""
    bank.admit(0, 0, setting, None)
    try:
        yield
    finally:
        bank.evict(0)


@contextmanager
def _able_proxy(bank: Bank, scoring: ScoringFacts) -> Generator[None]:
    """A proxy that the steps can be made with, where the task's own failed."""
    parts = bank.parts
    if scoring.proxy.fault is not None:
        bank.parts = replace(parts, data=replace(parts.data, proxy=StandIn()))
    try:
        yield
    finally:
        bank.parts = parts
