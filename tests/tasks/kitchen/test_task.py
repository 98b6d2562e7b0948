"""The task as the trainer meets it: splits by food, shipped weights that load."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

import kltune
from kltune.rewards.learned import LearnedReward
from kltune.spec.model import BUILTIN_MODELS
from kltune.tasks.kitchen import task
from kltune.tasks.kitchen.foods import BY_NAME, FOODS
from kltune.tasks.kitchen.grammar import QUESTIONS, answer
from kltune.tasks.protocol import Prompt, Sample


def foods_of(prompts: tuple[Prompt, ...]) -> set[str]:
    return {prompt.columns["food"] for prompt in prompts}


def test_no_food_is_in_two_splits_and_none_is_left_out() -> None:
    splits = task.splits()
    parts = [foods_of(splits.train), foods_of(splits.select), foods_of(splits.test)]
    assert [len(part) for part in parts] == [40, 13, 13]
    assert set().union(*parts) == set(BY_NAME)


def test_every_split_knows_every_way_of_cooking() -> None:
    splits = task.splits()
    for part in (splits.train, splits.select, splits.test):
        assert len({BY_NAME[food].method for food in foods_of(part)}) == 5


def test_prompt_ids_are_unique_and_select_fills_an_evaluation() -> None:
    splits = task.splits()
    ids = [p.id for p in (*splits.train, *splits.select, *splits.test)]
    assert len(ids) == len(set(ids)) == len(FOODS) * len(QUESTIONS)
    assert len(splits.select) >= 64


def test_the_first_prompts_of_a_split_cover_all_of_its_foods() -> None:
    assert len(foods_of(task.splits().select[:13])) == 13


def test_importing_the_task_loads_no_torch() -> None:
    code = "import sys, kltune.tasks.kitchen.task, kltune.tasks.kitchen.gold; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_tokenizer_gives_back_its_own_answers() -> None:
    tokenizer = AutoTokenizer.from_pretrained(task.BASE)
    rng = random.Random(0)
    for food in FOODS:
        text = answer(food, rng)
        ids = tokenizer(text).input_ids
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids) == text


def test_questions_hold_no_unknown_word() -> None:
    tokenizer = AutoTokenizer.from_pretrained(task.BASE)
    splits = task.splits()
    for prompt in (*splits.train, *splits.select, *splits.test):
        ids = tokenizer(prompt.text).input_ids
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids) == prompt.text


def test_the_base_is_a_small_llama_that_pads_to_the_left() -> None:
    tokenizer = AutoTokenizer.from_pretrained(task.BASE)
    model = AutoModelForCausalLM.from_pretrained(task.BASE)
    assert isinstance(model, LlamaForCausalLM)
    assert 0.3e6 <= sum(p.numel() for p in model.parameters()) <= 2e6
    assert tokenizer.padding_side == "left"
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert model.config.eos_token_id == tokenizer.eos_token_id


def test_the_other_sizes_are_the_same_model_half_and_twice_as_wide() -> None:
    bases = {size: task.WEIGHTS / name for size, name in task.FOLDERS.items()}
    configs = {size: AutoConfig.from_pretrained(folder) for size, folder in bases.items()}
    assert [configs[size].hidden_size for size in ("small", "medium", "large")] == [48, 96, 192]
    assert len({config.num_hidden_layers for config in configs.values()}) == 1
    tokenizers = {(folder / "tokenizer.json").read_bytes() for folder in bases.values()}
    assert len(tokenizers) == 1
    package = Path(kltune.__file__).parent
    assert set(bases.values()) == {package / folder for folder in BUILTIN_MODELS.values()}


def test_the_medium_weights_are_those_of_all_recorded_studies() -> None:
    digest = hashlib.sha256((task.BASE / "model.safetensors").read_bytes()).hexdigest()
    assert digest == "f9b98086014cb2f8370cd457138106859a049d41a5fff3b6e20b01101335d1d3"


def test_the_shipped_reward_prefers_a_time_to_filler() -> None:
    tokenizer = AutoTokenizer.from_pretrained(task.BASE)
    reward = LearnedReward.load(task.REWARD, lambda prompt: tokenizer(prompt.text).input_ids)

    def mean_score(text: str) -> float:
        ids = (*tokenizer(text).input_ids, tokenizer.eos_token_id)
        samples = [Sample(prompt, text, ids, ended=True) for prompt in task.splits().train]
        return sum(reward(samples)) / len(samples)

    assert mean_score("I am happy to help. Cooking is an art. It depends.") < mean_score(
        "It takes 10 to 12 minutes."
    )


def test_the_weights_stay_under_ten_megabytes() -> None:
    size = sum(path.stat().st_size for path in task.WEIGHTS.rglob("*") if path.is_file())
    assert size == pytest.approx(5e6, abs=5e6)
