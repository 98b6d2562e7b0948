"""A proxy is learned from gold's noisy comparisons of the reference's own completions, once per study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import tiny
from scipy.stats import spearmanr

from kltune.errors import TrialFault
from kltune.launch.proxy import folder_of, keep_proxy, learn, ready_proxy
from kltune.rewards.learned import LearnedReward
from kltune.spec.task import LearnedProxySpec
from kltune.spec.trainer import TrainerSpec
from kltune.tasks.protocol import Sample, Splits
from kltune.tasks.registry import Task
from kltune.trainer.encode import PromptEncoder
from kltune.trainer.keyed import Purpose
from kltune.trainer.scale import sample_reference

TRAINER = TrainerSpec(steps=1, prompts=2, group_size=4, max_new_tokens=6)
SPEC = LearnedProxySpec.model_validate(
    {"from": "gold", "comparisons": 600, "label_noise": 0.0, "steps": 80, "learning_rate": 3e-3}
)


@dataclass(frozen=True)
class ManyLarge:
    """Gold: the more tokens of the upper half of the vocabulary the better."""

    name: str = "many-large"

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        return [float(sum(i > 15 for i in sample.token_ids)) for sample in samples]


def task(proxy: LearnedProxySpec = SPEC) -> Task:
    splits = Splits(tiny.PROMPTS[:8], tiny.PROMPTS[8:10], tiny.PROMPTS[10:])
    return Task("tiny", splits, ManyLarge(), proxy, {})


def test_a_learned_proxy_agrees_with_gold_on_fresh_completions_without_noise() -> None:
    model = tiny.loaded()
    train = tiny.encoded(model, tiny.PROMPTS[:8])
    reward = learn(task(), SPEC, model, train, TRAINER, seed=0)
    reward.encode_prompt = PromptEncoder(model.tokenizer, tiny.MODEL)
    assert reward.facts.held_out_accuracy > 0.8
    fresh = tiny.encoded(model, tiny.PROMPTS[8:])
    draw = (7, Purpose.EVALUATION)
    samples = sample_reference(model, fresh, [0, 1, 2, 3], 16, TRAINER, draw)
    assert spearmanr(reward(samples), ManyLarge()(samples)).statistic > 0.4


def test_it_is_learned_once_and_read_back_the_next_time(tmp_path: Path) -> None:
    model = tiny.loaded()
    train = tiny.encoded(model, tiny.PROMPTS[:8])
    encode = PromptEncoder(model.tokenizer, tiny.MODEL)
    short = SPEC.model_copy(update={"steps": 3, "comparisons": 40})
    first = ready_proxy(task(short), model, train, encode, TRAINER, (tmp_path, 0))
    assert not folder_of(tmp_path).exists()
    keep_proxy(task(short), first, tmp_path)
    stamp = (folder_of(tmp_path) / "reward.json").stat().st_mtime_ns
    second = ready_proxy(task(short), model, train, encode, TRAINER, (tmp_path, 0))
    samples = [Sample(tiny.PROMPTS[0], "w1", (3, 4, 1), ended=True)]
    assert isinstance(second, LearnedReward)
    assert list(first(samples)) == list(second(samples))
    assert (folder_of(tmp_path) / "reward.json").stat().st_mtime_ns == stamp


def test_a_gold_that_raises_while_labels_are_made_is_named() -> None:
    def broken(samples: Sequence[Sample]) -> list[float]:
        raise KeyError("food")

    model = tiny.loaded()
    train = tiny.encoded(model, tiny.PROMPTS[:8])
    bad = Task("tiny", task().splits, _Named(broken), SPEC, {})
    few = SPEC.model_copy(update={"comparisons": 10})
    with pytest.raises(TrialFault, match=r"broken.*KeyError"):
        learn(bad, few, model, train, TRAINER, seed=0)


class _Named:
    def __init__(self, function) -> None:
        self.name = function.__name__
        self._function = function

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        return self._function(samples)
