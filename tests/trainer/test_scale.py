"""sigma_R by hand on known scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import tiny

from kltune.errors import SpecError
from kltune.tasks.protocol import Prompt, Sample
from kltune.trainer.keyed import Purpose
from kltune.trainer.lora import attach
from kltune.trainer.scale import NUM_GROUPS, measure_scale, sample_reference


@dataclass
class ByPlace:
    """Scores of a group are 0, 1, 2, ... times the prompt's number, whatever the text."""

    group: int
    name: str = "place"

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        return [float((i % self.group) * int(s.prompt.id[1:])) for i, s in enumerate(samples)]


def test_sigma_is_the_mean_over_groups_of_the_spread_within_a_group() -> None:
    model = tiny.loaded()
    trainer = tiny.settings().trainer  # groups of 4
    scale = measure_scale(model, tiny.encoded(model, tiny.PROMPTS[:8]), ByPlace(4), trainer, seed=0)
    spread = math.sqrt(5 / 3)  # of 0, 1, 2, 3 with n - 1
    assert scale.num_groups == 8
    assert scale.sigma == pytest.approx(spread * sum(range(8)) / 8, rel=1e-12)
    assert scale.mean == pytest.approx(1.5 * sum(range(8)) / 8, rel=1e-12)


def test_differences_between_prompts_do_not_count() -> None:
    model = tiny.loaded()

    class Easy:
        name = "easy"

        def __call__(self, samples: Sequence[Sample]) -> list[float]:
            return [100.0 * int(s.prompt.id[1:]) for s in samples]

    scale = measure_scale(
        model, tiny.encoded(model, tiny.PROMPTS[:8]), Easy(), tiny.settings().trainer, seed=0
    )
    assert scale.sigma == 0


def test_mean_tokens_counts_valid_tokens_of_the_references_completions() -> None:
    model = tiny.loaded()
    train, trainer = tiny.encoded(model, tiny.PROMPTS[:8]), tiny.settings().trainer
    scale = measure_scale(model, train, ByPlace(4), trainer, seed=0)
    samples = sample_reference(model, train, list(range(8)), 4, trainer, (0, Purpose.SCALE))
    assert len(samples) == 32
    assert scale.mean_tokens == sum(len(s.token_ids) for s in samples) / 32
    assert all(1 <= len(s.token_ids) <= 6 and s.ended == (s.token_ids[-1] == 1) for s in samples)
    assert [s.prompt.id for s in samples[:5]] == ["p0"] * 4 + ["p1"]


def test_at_most_32_prompts_are_used_spread_over_the_split() -> None:
    model = tiny.loaded()
    many = [Prompt(f"p{i}", f"w{i % 28}") for i in range(70)]
    seen: list[str] = []

    class Watching(ByPlace):
        def __call__(self, samples: Sequence[Sample]) -> list[float]:
            seen.extend(s.prompt.id for s in samples)
            return super().__call__(samples)

    scale = measure_scale(
        model, tiny.encoded(model, many), Watching(4), tiny.settings().trainer, seed=0
    )
    assert scale.num_groups == len(set(seen)) == NUM_GROUPS
    assert "p0" in seen
    assert max(int(name[1:]) for name in seen) > 60


def test_the_reference_is_sampled_whatever_adapters_the_base_carries() -> None:
    model = tiny.loaded()
    train, trainer = tiny.encoded(model, tiny.PROMPTS[:8]), tiny.settings().trainer
    before = sample_reference(model, train, [0, 3], 4, trainer, (0, Purpose.SCALE))
    attach(model.body, 2, 4, 8).flat_KP.fill_(0.3)
    assert sample_reference(model, train, [0, 3], 4, trainer, (0, Purpose.SCALE)) == before


def test_the_same_seed_measures_the_same_and_another_seed_other_completions() -> None:
    model = tiny.loaded()
    train, trainer = tiny.encoded(model, tiny.PROMPTS[:8]), tiny.settings().trainer
    one, again, other = (
        measure_scale(model, train, tiny.CountWord("w3"), trainer, seed=s) for s in (1, 1, 2)
    )
    assert one == again
    assert one != other


def test_how_many_prompts_run_at_once_changes_no_completion() -> None:
    model = tiny.loaded()
    train = tiny.encoded(model, tiny.PROMPTS[:8])
    few, many = (
        sample_reference(
            model, train, list(range(8)), 4, tiny.settings(prompts=p).trainer, (0, Purpose.SCALE)
        )
        for p in (1, 8)
    )
    assert few == many


def test_a_gold_that_judges_like_the_proxy_is_refused() -> None:
    model = tiny.loaded()
    train = tiny.encoded(model, tiny.PROMPTS[:8])
    spec = tiny.settings().trainer
    proxy, disguise = tiny.CountWord("w3"), tiny.CountWord("w3", name="gold")
    with pytest.raises(SpecError, match=r"task\.golds\.second \(gold\) gave the same scores"):
        measure_scale(model, train, proxy, spec, 0, golds={"task.golds.second": disguise})
    other = tiny.CountWord("w4", name="gold")
    assert measure_scale(model, train, proxy, spec, 0, golds={"task.gold": other}).sigma > 0


@dataclass
class Shifted:
    """A scorer's scores, scaled and moved."""

    factor: float
    offset: float
    name: str = "shifted"

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        return [self.factor * x + self.offset for x in tiny.CountWord("w3")(samples)]


@pytest.mark.parametrize(("factor", "offset"), [(1.0, 1e12), (1.0, -1e7), (1e300, 0.0)])
def test_a_proxy_that_single_precision_cant_hold_is_refused(factor: float, offset: float) -> None:
    model = tiny.loaded()
    train, trainer = tiny.encoded(model, tiny.PROMPTS[:8]), tiny.settings().trainer
    with pytest.raises(SpecError, match=r"task\.proxy: .*single precision.*subtract a constant"):
        measure_scale(model, train, Shifted(factor, offset), trainer, seed=0)
    assert measure_scale(model, train, Shifted(1.0, 100.0), trainer, seed=0).sigma > 0
