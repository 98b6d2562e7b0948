from __future__ import annotations

from pathlib import Path

import pytest
from spec_files import minimal, problems_of

from kltune.spec.baseline import repeats
from kltune.spec.doubts import find_doubts
from kltune.spec.load import load_spec
from kltune.spec.penalty import Penalty
from kltune.spec.recipes import PREFERENCES, RECIPES, WITHOUT_KL, unknown_words
from kltune.spec.trial import ControllerKind
from tests.spec_files import write

REWARD = {
    "ziegler-sentiment": 0.15, "ziegler-cnndm": 0.01, "ziegler-tldr": 0.03, "stiennon": 0.05,
    "instructgpt": 0.02, "bai-2022": 0.001, "trl-ppo-1.12": 0.05, "rloo-paper": 0.03,
    "trl-rloo": 0.05, "tulu3-ppo-8b": 0.05, "tulu3-ppo-70b": 0.07, "tulu3-ppo-405b": 0.05,
    "verl-ppo": 0.001, "openrlhf-ppo": 0.01, "comedy-low": 0.05, "comedy-high": 0.1,
    "trl-ppo-0.11": 0.2, "conservative": 0.05, "aggressive": 0.001,
}  # fmt: skip
"""kl-reference.md \u00a77 (trl-ppo-0.11: \u00a73.5): k1 in the reward, raw reward per nat of sequence KL."""

K3 = {
    "trl-grpo-0.18": 0.04, "deepseekmath": 0.04, "deepseek-r1": 0.001, "tulu3-grpo": 0.01,
    "open-instruct-grpo": 0.05, "verl-grpo": 0.001, "verl-grpo-vl": 0.01, "verl-grpo-openr1": 0.02,
    "intellect-2": 0.001, "prorl-v1": 1e-4, "deepscaler-0.001": 0.001, "deepscaler-1e-4": 1e-4,
    "openrlhf-dapo-style": 0.001, "nemo-math-1b-0.6": 0.01, "nemo-moonlight-0.6": 0.04,
    "nemo-dsr1-7b-0.6": 0.001,
}  # fmt: skip
WEIGHTED_K3 = {"nemo-math-1b-0.7": 0.01, "nemo-moonlight-0.7": 0.04, "nemo-dsr1-7b-0.7": 0.001}
K2 = {"prorl-v2": 1e-4, "openrlhf-reinforce++": 1e-5, "maths": 0.01, "code": 0.001}
"""The same, in the loss: beside group-normalised advantages."""

TABLE = {
    **{name: (Penalty.K1_REWARD, beta, "reward") for name, beta in REWARD.items()},
    **{name: (Penalty.K3_LOSS, beta, "advantage") for name, beta in K3.items()},
    **{name: (Penalty.WK3_LOSS, beta, "advantage") for name, beta in WEIGHTED_K3.items()},
    **{name: (Penalty.K2_LOSS, beta, "advantage") for name, beta in K2.items()},
}


def test_every_recipe_is_known_by_its_own_name() -> None:
    assert all(name == recipe.name for name, recipe in RECIPES.items())
    assert set(RECIPES) == set(TABLE)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_recipe_has_the_numbers_of_the_table(name: str) -> None:
    recipe = RECIPES[name]
    assert (recipe.penalty, recipe.beta, recipe.beta_in) == TABLE[name]
    assert recipe.source


def test_two_recipes_are_steered_by_zieglers_controller_and_the_rest_are_fixed() -> None:
    steered = {r.name: r for r in RECIPES.values() if r.controller is not ControllerKind.FIXED}
    assert set(steered) == {"ziegler-sentiment", "trl-ppo-0.11"}
    for recipe in steered.values():
        assert recipe.controller is ControllerKind.PROPORTIONAL
        assert (recipe.target_kl_seq, recipe.horizon) == (6.0, 10_000)


def test_a_penalty_in_the_reward_has_beta_in_reward() -> None:
    assert all(r.penalty.in_reward == (r.beta_in == "reward") for r in RECIPES.values())
    assert all(r.penalty.nature.refusal is None for r in RECIPES.values())


def test_this_projects_readings_say_that_they_are_no_publication() -> None:
    own = {r.name: r.source for r in RECIPES.values() if not r.is_published}
    assert set(own) == {"conservative", "aggressive", "maths", "code"}
    assert all("this project's reading" in source for source in own.values())


@pytest.mark.parametrize("name", [*WITHOUT_KL, "DAPO", "dr_grpo"])
def test_a_setting_without_kl_is_told_to_be_the_arm_beta_zero(name: str, tmp_path: Path) -> None:
    (line,) = problems_of(tmp_path, {**minimal(), "baselines": [name]})
    assert "trains without a KL" in line
    assert "search.beta.zero: true" in line


@pytest.mark.parametrize("name", [*PREFERENCES])
def test_preference_losses_are_told_to_be_something_else(name: str) -> None:
    assert "is no reinforcement learning" in unknown_words(name)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("verl", "verl-ppo"),
        ("verl_ppo", "verl-ppo"),
        ("Instruct-GPT", "instructgpt"),
        ("deepseek-math", "deepseekmath"),
        ("math", "maths"),
        ("trl-grpo-0.17", "trl-grpo-0.18"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_ones(typed: str, meant: str) -> None:
    words = unknown_words(typed)
    assert words.startswith(f"unknown recipe {typed!r}; did you mean ")
    assert meant in words
    assert words.endswith("`kltune explain recipes` lists all")


def test_a_name_like_no_other_is_answered_without_a_guess() -> None:
    assert unknown_words("zzzz") == "unknown recipe 'zzzz'; `kltune explain recipes` lists all"


def test_the_same_setting_under_two_names_is_a_doubt_not_a_refusal(tmp_path: Path) -> None:
    assert repeats(["verl-ppo", "verl-grpo", "instructgpt"]) == []
    spec = {**minimal(), "baselines": ["stiennon", "trl-rloo"]}
    doubts = find_doubts(load_spec(write(tmp_path, spec)).spec)
    assert [doubt for doubt in doubts if doubt.startswith("baselines.1: ")] == [
        "baselines.1: trl-rloo is the setting of stiennon under another name, so its trial repeats that one"
    ]
