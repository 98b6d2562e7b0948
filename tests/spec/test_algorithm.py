from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from spec_files import minimal, problems_of

from kltune.spec.algorithm import OWN_AGGREGATION, Algorithm
from kltune.spec.trainer import TrainerSpec


def told(folder: Path, **trainer: Any) -> list[str]:
    shape = {"steps": 10, "prompts": 2, "group_size": 4}
    return problems_of(folder, {**minimal(), "trainer": {**shape, **trainer}})


def trainer(**fields: Any) -> TrainerSpec:
    return TrainerSpec.model_validate({"steps": 10, "prompts": 2, "group_size": 4, **fields})


@pytest.mark.parametrize("algorithm", get_args(Algorithm))
def test_every_algorithm_has_an_aggregation_of_its_own_that_can_be_overridden(
    algorithm: str,
) -> None:
    assert trainer(algorithm=algorithm).loss_aggregation == OWN_AGGREGATION[algorithm]
    given = trainer(algorithm=algorithm, aggregation="seq-mean-token-mean")
    assert given.loss_aggregation == "seq-mean-token-mean"


def test_only_ppo_has_a_critic_and_pays_each_token_at_its_place() -> None:
    assert trainer().value_function is None
    assert trainer().credit == "sequence"
    ppo = trainer(algorithm="ppo", critic={"gae_lambda": 0.9})
    assert ppo.value_function is not None
    assert ppo.value_function.gae_lambda == 0.9
    assert ppo.credit == "reward-to-go"


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"critic": {}}, "trainer.critic: only ppo has a critic (algorithm is grpo)"),
        (
            {"algorithm": "ppo", "kl": {"credit": "sequence"}},
            "trainer.kl.credit: ppo pays each token's KL at its place: only reward-to-go (got sequence)",
        ),
        (
            {"importance": "sequence"},
            "trainer.importance: a ratio of whole completions needs aggregation: seq-mean-token-sum "
            "(it is token-mean)",
        ),
        (
            {"algorithm": "rloo", "importance": "sequence", "kl": {"credit": "reward-to-go"}},
            "trainer.importance: a ratio of whole completions needs one advantage per completion, so "
            "not kl.credit: reward-to-go or ppo",
        ),
        (
            {"minibatches": 3},
            "trainer.minibatches: 3 does not divide the 8 completions per step; allowed: 1, 2, 4, 8",
        ),
        (
            {"minibatches": 2, "micro_batch": 8},
            "trainer.micro_batch: 8 does not divide the 4 completions per update; allowed: 1, 2, 4",
        ),
        (
            {"clip_ratio_high": 0.3, "clip_ratio_max": 1.25},
            "trainer.clip_ratio_max: must be above the upper clip, 1.3 (got 1.25)",
        ),
        (
            {"reference": {"mixture": 0.5}},
            "trainer.reference.mixture: has no effect without reference.every (got 0.5)",
        ),
    ],
)
def test_what_does_not_fit_together_is_one_line_that_names_the_field(
    tmp_path: Path, wrong: dict[str, Any], line: str
) -> None:
    assert told(tmp_path, **wrong) == [line]


def test_full_fine_tuning_is_a_bank_of_one(tmp_path: Path) -> None:
    spec = minimal()
    spec["model"]["finetune"] = "full"
    assert problems_of(tmp_path, spec) == []
    spec["budget"]["slots"] = 4
    assert problems_of(tmp_path, spec) == [
        "budget.slots: model.finetune: full trains one trial at a time (got 4)"
    ]


def test_full_fine_tuning_trains_float32_weights(tmp_path: Path) -> None:
    spec = minimal()
    spec["model"] |= {"finetune": "full", "dtype": "bfloat16"}
    (line,) = problems_of(tmp_path, spec)
    assert line.startswith("model.dtype: finetune: full trains float32 weights (got bfloat16)")


def test_exact_full_has_one_price_so_no_length_mean(tmp_path: Path) -> None:
    spec = minimal()
    spec["trainer"]["kl"] = {"credit": "length-mean"}
    spec["search"]["penalty"] = "k1-reward"
    assert problems_of(tmp_path, spec) == []
    spec["search"]["penalty"] = {"choice": ["k1-reward", "exact-full"]}
    (line,) = problems_of(tmp_path, spec)
    assert line.startswith("trainer.kl.credit: length-mean prices a nat in the reward by")
