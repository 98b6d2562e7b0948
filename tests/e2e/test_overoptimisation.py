"""The built-in task shows the real phenomenon: without KL the proxy rises on while gold turns and falls."""

from __future__ import annotations

from pathlib import Path

import pytest

from kltune.launch.assemble import build_bank, find_inputs, load_ground, reference_scale
from kltune.metrics.record import EvalMetrics
from kltune.spec.load import load_spec
from kltune.spec.trial import TrialSpec

# The same is shown, scaled down, by tests/studies; this is the built-in task at its full length.
pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
BETAS = (0.0, 0.15, 10.0)
SEED = 10
"""Not among the seeds that the task was tuned on."""


@pytest.fixture(scope="module")
def curves() -> dict[float, list[EvalMetrics]]:
    """Evaluations every 10 steps of three betas, one seed, 80 steps, k2-loss."""
    spec = load_spec(ROOT / "sweeps" / "kitchen.yaml", ("budget.slots=3",))
    ground = load_ground(spec.spec, find_inputs(spec), None)
    bank = build_bank(ground, spec.spec, reference_scale(ground, spec.spec, None))
    for slot, beta in enumerate(BETAS):
        setting = {
            "beta": beta,
            "penalty": "k2-loss" if beta else None,
            "learning_rate": spec.spec.trainer.learning_rate,
            "seed": SEED,
        }
        bank.admit(slot, slot, TrialSpec.model_validate(setting), None)
    found: dict[float, list[EvalMetrics]] = {beta: [] for beta in BETAS}
    for step in range(spec.spec.trainer.steps + 1):
        if step % spec.spec.evaluate.every == 0:
            for metrics in bank.evaluate(range(3)):
                found[BETAS[metrics.slot]].append(metrics)
        if step < spec.spec.trainer.steps:
            bank.train_step()
    return found


def test_without_kl_gold_peaks_and_falls_far_while_the_proxy_rises(
    curves: dict[float, list[EvalMetrics]],
) -> None:
    gold = [metrics.gold for metrics in curves[0.0]]
    peak = gold.index(max(gold))
    assert 0 < peak < len(gold) - 1
    assert max(gold) > gold[0] + 0.4
    assert gold[-1] < max(gold) - 0.4
    assert curves[0.0][-1].proxy > curves[0.0][peak].proxy
    assert curves[0.0][-1].kl_seq > 3


def test_a_good_beta_ends_above_no_kl_and_above_a_huge_beta(
    curves: dict[float, list[EvalMetrics]],
) -> None:
    ends = {beta: metrics[-1].gold for beta, metrics in curves.items()}
    assert ends[0.15] > ends[0.0] + 0.3
    assert ends[0.15] > ends[10.0] + 0.3


def test_a_huge_beta_stays_at_the_reference(curves: dict[float, list[EvalMetrics]]) -> None:
    assert max(metrics.kl_seq for metrics in curves[10.0]) < 0.3


def test_every_setting_starts_from_the_very_same_evaluation(
    curves: dict[float, list[EvalMetrics]],
) -> None:
    starts = [metrics[0] for metrics in curves.values()]
    assert all(start.kl_seq == 0.0 for start in starts)
    assert len({start.gold_by_prompt for start in starts}) == 1
