from __future__ import annotations

from pathlib import Path

import pytest
from spec_files import minimal, write

from kltune.errors import SpecError
from kltune.launch.plan_pilot import _noise, sample_reference
from kltune.metrics.record import EvalMetrics, EvalSample
from kltune.spec.load import load_spec


@pytest.mark.slow
def test_the_reference_gives_noise_and_time(tmp_path: Path) -> None:
    spec = minimal()
    spec["trainer"]["max_new_tokens"] = 6
    loaded = load_spec(write(tmp_path, spec), ("evaluate.samples=1", "evaluate.every=10"))
    known = sample_reference(loaded)
    assert known.noise.samples == 2, "one sample can't be told from its prompt"
    assert known.noise.between is not None
    assert known.noise.sample is not None
    assert known.noise.sample > 0
    assert known.price.is_timed
    assert known.price.evaluations == 3
    assert known.price.train > 0


def judged(means: tuple[float, ...], firsts: tuple[float, ...]) -> EvalMetrics:
    samples = tuple(EvalSample("p", "", "", gold, 0.0, 0.0, 1, True) for gold in firsts)
    return EvalMetrics(0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, means, means, {}, samples)


def test_samples_are_told_from_prompts() -> None:
    # Two samples of +1 and -1 about each prompt's mean: variance 2 of one, 4 of a difference of two.
    found = _noise(judged((10.0, 14.0), (11.0, 13.0)), samples=2)
    assert found.sample == pytest.approx(4.0)
    assert found.between == pytest.approx(8.0 - 4.0 / 2 / 2)


def test_a_gold_that_does_not_vary_is_refused() -> None:
    with pytest.raises(SpecError, match=r"task\.gold"):
        _noise(judged((1.0, 1.0), (1.0, 1.0)), samples=2)
