"""A design of three settings and three seeds, and its runs on the fake bank with every completion kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kltune.confirm.design import Arm, Design
from kltune.launch.confirm_record import find_runs
from kltune.metrics.record import EvalMetrics, EvalSample
from kltune.spec.penalty import Penalty
from kltune.spec.trial import TrialSpec
from kltune.study.repeat import RepeatEnd, Where, repeat
from kltune.tasks.protocol import Prompt
from tests.fake_bank import FakeBank, small_spec

PROMPTS = tuple(
    Prompt(f"p{i}", f"How long {i}?", {"food": "egg" if i == 0 else "rice"}) for i in range(4)
)
ARMS = (
    Arm(4, "recommended", "sobol", TrialSpec(beta=0.1, penalty=Penalty.K2_LOSS, learning_rate=1e-3), 8, 1.0),
    Arm(0, "baseline", "zero", TrialSpec(beta=0.0, learning_rate=1e-3), 4, 0.5),
    Arm(None, "start", "start", TrialSpec(beta=0.0, learning_rate=1e-3), 0),
)  # fmt: skip
DESIGN = Design(ARMS, (11, 12, 13), num_prompts=4, samples=2, digest="d")


class KeepingBank(FakeBank):
    """Keeps two completions of each prompt."""

    def evaluate(self, slots: Sequence[int]) -> tuple[EvalMetrics, ...]:
        return tuple(replace(m, samples=_samples(m)) for m in super().evaluate(slots))


def _samples(metrics: EvalMetrics) -> tuple[EvalSample, ...]:
    return tuple(
        EvalSample(
            PROMPTS[i // 2].id, PROMPTS[i // 2].text, f"boil for {i}", 0.0, 0.0, 0.0, 3, True, {"short": 2.0 * i}
        )
        for i in range(8)
    )  # fmt: skip


def WHERE(folder: Path) -> Where:
    return Where(folder, small_spec(), 0.5)


def train(folder: Path, design: Design, bank: FakeBank | None = None) -> RepeatEnd:
    runs = find_runs(folder, design).missing
    return repeat(bank or KeepingBank(num_slots=2, prompts=4), runs, WHERE(folder))
