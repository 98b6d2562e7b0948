from __future__ import annotations

import io

import pytest

from kltune.explain import page
from kltune.explain.recipes import RecipesQuestion, explain_recipes
from kltune.explain.recipes_screen import recipes_screen
from kltune.spec.recipes import RECIPES, WITHOUT_KL


def shown(name: str | None = None, sigma_r: float = 0.5, tokens: float = 40) -> str:
    stream = io.StringIO()
    page.show(recipes_screen(explain_recipes(RecipesQuestion(name, sigma_r, tokens))), stream)
    return stream.getvalue()


def test_all_stand_on_one_screen_with_their_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = shown()
    assert len(text.splitlines()) <= 33
    words = text.replace("\n", " ").replace(",", " ").replace("*", " ").replace(".  ", " ").split()
    assert set(RECIPES) <= set(words)
    assert {name for name in WITHOUT_KL if name != "trl-grpo"} <= set(words)
    flat = " ".join(text.split())
    assert "0.2 0.2 k1-reward trl-ppo-0.11 (proportional, 6 nats/sequence, horizon 10,000)" in flat
    assert "raw: raw reward per nat of sequence KL at a reward spread of 0.5" in flat
    assert "0.04 0.02 k3-loss trl-grpo-0.18, deepseekmath, nemo-moonlight-0.6" in flat


def test_one_tells_source_unit_and_its_other_names() -> None:
    text = " ".join(shown("tulu3-ppo-8b").split())
    assert "source Tulu 3 8B PPO" in text
    assert "its verifier pays 10 for a right answer" in text
    assert "beta 0.05 raw reward per nat of sequence KL" in text
    assert "same as trl-rloo, stiennon, " in text
    assert "baselines: [tulu3-ppo-8b]" in text


def test_a_loss_coefficient_is_told_in_both_units_and_a_target_too() -> None:
    text = " ".join(shown("deepseekmath", sigma_r=0.4).split())
    assert "0.04 beside advantages over the group's standard deviation = 0.016 raw reward" in text
    text = " ".join(shown("ziegler-sentiment", tokens=24).split())
    assert "6 nats per sequence = 0.25 nats per token at 24 tokens, horizon 10,000" in text
    assert "same as \u2013" in text
