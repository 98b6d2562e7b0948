"""A reward model learns from comparisons, and is honest about how well."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kltune.errors import SpecError
from kltune.rewards.comparisons import Comparison
from kltune.rewards.learned import FitSettings, LearnedReward, fit_learned_reward
from kltune.tasks.protocol import Prompt, Sample

SETTINGS = FitSettings(steps=60, batch_size=32, learning_rate=3e-3)
GOOD = 7


def tiny_llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=16,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=32,
        )
    )


def comparisons_that_prefer_good(num: int = 300) -> list[Comparison]:
    """The answer that holds token GOOD is better; lengths differ at random."""
    rng = random.Random(0)

    def words(num_words: int) -> tuple[int, ...]:
        return tuple(rng.choice([3, 4, 5, 6]) for _ in range(num_words))

    made: list[Comparison] = []
    for _ in range(num):
        good = (*words(rng.randrange(4)), GOOD, *words(rng.randrange(1, 4)))
        bad, prompt = words(rng.randrange(1, 8)), words(3)
        a_is_better = rng.random() < 0.5
        a, b = (good, bad) if a_is_better else (bad, good)
        made.append(Comparison(prompt, a, b, a_is_better))
    return made


@pytest.fixture(scope="module")
def fitted() -> LearnedReward:
    return fit_learned_reward(tiny_llama(), comparisons_that_prefer_good(), 0.0, SETTINGS, seed=0)


SEQUENCES = [[3, 4, 5], [3, GOOD, 5, 6, 4, 4], [4], [5, 5, GOOD, 3, 3, 3, 3, 3, 3]]


def test_it_learns_a_plain_preference(fitted: LearnedReward) -> None:
    assert fitted.facts.held_out_accuracy > 0.9


def test_its_unit_is_the_standard_deviation_over_base_samples(fitted: LearnedReward) -> None:
    pairs = comparisons_that_prefer_good()
    scores = torch.tensor(
        fitted.score_tokens([[*c.prompt_ids, *ids] for c in pairs for ids in (c.a_ids, c.b_ids)])
    )
    assert scores.mean().item() == pytest.approx(0.0, abs=1e-4)
    assert scores.std().item() == pytest.approx(1.0, abs=1e-4)


def test_neighbours_and_padding_do_not_change_a_score(fitted: LearnedReward) -> None:
    together = fitted.score_tokens(SEQUENCES)
    alone = [fitted.score_tokens([ids])[0] for ids in SEQUENCES]
    assert together == pytest.approx(alone, abs=1e-5)


def test_save_and_load_give_identical_scores(fitted: LearnedReward, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    loaded = LearnedReward.load(tmp_path)
    assert loaded.score_tokens(SEQUENCES) == fitted.score_tokens(SEQUENCES)
    assert loaded.facts == fitted.facts


def test_a_record_of_another_schema_is_refused(fitted: LearnedReward, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    path = tmp_path / "reward.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))
    with pytest.raises(SpecError, match="schema 99"):
        LearnedReward.load(tmp_path)


def test_a_folder_without_a_reward_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no learned reward"):
        LearnedReward.load(tmp_path)


def test_fitting_leaves_the_base_as_it_was() -> None:
    base = tiny_llama()
    before = copy.deepcopy(base.state_dict())
    fit_learned_reward(base, comparisons_that_prefer_good(40), 0.0, FitSettings(steps=3), seed=0)
    assert all(torch.equal(before[name], value) for name, value in base.state_dict().items())


def test_the_same_seed_gives_the_same_reward() -> None:
    fits = [
        fit_learned_reward(
            tiny_llama(), comparisons_that_prefer_good(40), 0.0, FitSettings(steps=3), seed=1
        )
        for _ in range(2)
    ]
    assert fits[0].score_tokens(SEQUENCES) == fits[1].score_tokens(SEQUENCES)


def test_a_smaller_proxy_keeps_only_its_first_layers(tmp_path: Path) -> None:
    settings = FitSettings(steps=3, layers=1)
    reward = fit_learned_reward(tiny_llama(), comparisons_that_prefer_good(40), 0.0, settings, 0)
    assert len(reward.trunk.layers) == 1
    reward.save(tmp_path)
    assert LearnedReward.load(tmp_path).score_tokens(SEQUENCES) == reward.score_tokens(SEQUENCES)


@pytest.mark.parametrize("layers", [0, 3])
def test_layers_that_the_base_has_not_are_refused(layers: int) -> None:
    with pytest.raises(SpecError, match="layers"):
        fit_learned_reward(
            tiny_llama(), comparisons_that_prefer_good(4), 0.0, FitSettings(layers=layers), 0
        )


def test_samples_are_scored_behind_their_encoded_prompt(fitted: LearnedReward) -> None:
    sample = Sample(Prompt(id="p", text="any"), text="", token_ids=(GOOD, 5), ended=True)
    scorer = LearnedReward(fitted.trunk, fitted.head, fitted.facts, lambda _: [3, 4])
    assert scorer([sample]) == fitted.score_tokens([[3, 4, GOOD, 5]])


def test_scoring_samples_without_a_way_to_encode_prompts_is_refused(fitted: LearnedReward) -> None:
    sample = Sample(Prompt(id="p", text="any"), text="", token_ids=(GOOD,), ended=True)
    with pytest.raises(SpecError, match="encode_prompt"):
        fitted([sample])
