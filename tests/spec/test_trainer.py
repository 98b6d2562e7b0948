from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spec_files import minimal, problems_of

from kltune.spec.trainer import TrainerSpec


def told(folder: Path, **trainer: Any) -> list[str]:
    return problems_of(folder, {**minimal(), "trainer": {"steps": 10, **trainer}})


def test_a_batch_that_the_group_does_not_divide_lists_groups_that_do(tmp_path: Path) -> None:
    assert told(tmp_path, completions=6, group_size=4) == [
        "trainer.completions: 6 is not a multiple of group_size 4; "
        "group sizes that divide it: 2, 3, 6"
    ]
    (line,) = told(tmp_path, completions=1, group_size=2)
    assert line.endswith("group sizes that divide it: none")


def test_a_group_of_one_is_refused(tmp_path: Path) -> None:
    # field case A35
    assert told(tmp_path, group_size=1) == [
        "trainer.group_size: Input should be greater than or equal to 2 (got 1)"
    ]
    (line,) = told(tmp_path, completions=8, group_size=1)
    assert line.startswith("trainer.group_size: ")


def test_completions_count_prompts(tmp_path: Path) -> None:
    spec = TrainerSpec.model_validate({"steps": 1, "completions": 12, "group_size": 4})
    assert (spec.prompts, spec.rows) == (3, 12)
    assert told(tmp_path, completions=16, prompts=None)
    assert told(tmp_path, completions=12, prompts=2) == [
        "trainer.completions: give prompts or completions, not both"
    ]


def test_a_micro_batch_must_divide_the_batch(tmp_path: Path) -> None:
    assert told(tmp_path, prompts=2, group_size=3, micro_batch=4) == [
        "trainer.micro_batch: 4 does not divide the 6 completions per step; allowed: 1, 2, 3, 6"
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"steps": 1.5},
        {"steps": True},
        {"steps": "many"},
        {"steps": None},
        {"prompts": 0},
        {"completions": 0},
        {"completions": -8},
        {"completions": "8x"},
        {"max_new_tokens": 0},
        {"temperature": 0},
        {"learning_rate": -1e-3},
        {"learning_rate": float("inf")},
        {"clip_ratio": 0},
        {"algorithm": "trpo"},
        {"precision": "fp16"},
        {"device": "gpu"},
        {"device": "cuda:x"},
    ],
)
def test_a_wrong_value_is_one_line_that_names_its_field(
    tmp_path: Path, wrong: dict[str, object]
) -> None:
    (name,) = wrong
    (line,) = told(tmp_path, **wrong)
    assert line.startswith(f"trainer.{name}: ")
    assert "(got " in line


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:1"])
def test_devices_are_taken(tmp_path: Path, device: str) -> None:
    assert told(tmp_path, device=device) == []
