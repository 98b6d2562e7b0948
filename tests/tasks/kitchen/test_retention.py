"""Retention is the share of sound sentences, said once."""

from __future__ import annotations

import pytest

from kltune.tasks.kitchen.foods import BY_NAME
from kltune.tasks.kitchen.retention import KitchenRetention, sound_share
from kltune.tasks.protocol import Prompt, Sample

RICE = BY_NAME["white rice"]


@pytest.mark.parametrize(
    ("text", "ended", "share"),
    [
        ("It takes 15 to 18 minutes. Salt the water.", True, 1.0),
        ("Not too long. Many people love white rice. Trust me on this.", True, 1.0),
        ("It takes 40 to 45 minutes.", True, 1.0),  # wrong, and sound: that is gold's business
        ("It takes cod. Salt the water.", True, 1 / 2),
        ("Drain well. Drain well. Drain well. Drain well.", True, 1 / 4),
        ("It takes 3 to It takes 3 to 4 minutes.", True, 0.0),
        ("Many people love pasta.", True, 0.0),  # another food's sentence
        ("Salt the water. Drain", False, 1 / 2),
        ("Salt the water. Drain well.", False, 2 / 3),
        ("Drain", True, 0.0),
        ("", True, 0.0),
        ("", False, 0.0),
    ],
)
def test_the_share_by_hand(text: str, ended: bool, share: float) -> None:
    assert sound_share(text, RICE, ended=ended) == pytest.approx(share)


def test_the_scorer_looks_at_each_answer_with_its_own_food() -> None:
    prompts = [Prompt("r", "q", {"food": "white rice"}), Prompt("k", "q", {"food": "kale"})]
    samples = [Sample(prompt, "Many people love kale.", (1,), True) for prompt in prompts]
    assert KitchenRetention()(samples) == [0.0, 1.0]
