"""Every algorithm learns the built-in task: the proxy rises on prompts that it did not train on."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, stdev

import pytest

from kltune.launch.assemble import Ground, build_bank, find_inputs, load_ground, reference_scale
from kltune.metrics.record import RewardScale
from kltune.spec.load import LoadedSpec, load_spec
from kltune.spec.trial import TrialSpec

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STEPS = 30
ALGORITHMS = {
    "grpo": (),
    "dr-grpo": (),
    "rloo": (),
    "reinforce": (),
    "ppo": ("trainer.epochs=2", "trainer.minibatches=2"),
}


def spec(*overrides: str) -> LoadedSpec:
    return load_spec(ROOT / "sweeps" / "kitchen.yaml", (f"trainer.steps={STEPS}", *overrides))


@pytest.fixture(scope="module")
def ground() -> tuple[Ground, RewardScale]:
    loaded = spec()
    ready = load_ground(loaded.spec, find_inputs(loaded), None)
    return ready, reference_scale(ready, loaded.spec, None)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_proxy_rises_under_every_algorithm(
    ground: tuple[Ground, RewardScale], algorithm: str
) -> None:
    loaded = spec(f"trainer.algorithm={algorithm}", *ALGORITHMS[algorithm])
    bank = build_bank(ground[0], loaded.spec, ground[1])
    setting = TrialSpec(beta=0.05, penalty="k1-reward", learning_rate=3e-3, seed=10)  # pyright: ignore[reportArgumentType]
    bank.admit(0, 0, setting, None)
    (start,) = bank.evaluate([0])
    steps = [bank.train_step()[0] for _ in range(STEPS)]
    (end,) = bank.evaluate([0])
    # the same prompts at both ends, so their differences count
    pairs = zip(end.proxy_by_prompt, start.proxy_by_prompt, strict=True)
    rises = [after - before for after, before in pairs]
    error = stdev(rises) / len(rises) ** 0.5
    assert fmean(rises) > 3 * error, f"{fmean(rises):.3f} +- {error:.3f}"
    assert start.kl_token == 0.0
    assert 0 < end.kl_token < 1.0
    assert all(step.is_finite for step in steps)
    if algorithm == "ppo":
        explained = [step.values["train/explained_variance"] for step in steps]
        assert fmean(explained[-20:]) > 0.1, "the critic knows something of the returns"
