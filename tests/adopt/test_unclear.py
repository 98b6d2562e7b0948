from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from adopt_case import VERL_GRPO, read

from kltune.adopt.reading import Reading
from kltune.adopt.unclear import moved, others
from kltune.errors import SpecError


def reading(folder: Path) -> Reading:
    return read(folder, "verl", VERL_GRPO, name="run.sh")


def nested(found: Reading, field: str) -> object:
    value: object = found.trainer
    for name in field.split("."):
        assert isinstance(value, dict)
        value = value.get(name)
    return value


@pytest.mark.parametrize(
    "field",
    ["epochs", "minibatches", "learning_rate", "weight_decay", "clip_ratio_high"],
)
def test_another_value_is_tried_for_a_field_of_the_trainer(field: str, tmp_path: Path) -> None:
    found = replace(reading(tmp_path), unclear={field: "x"})
    assert others(found, field, lambda one: nested(one, field)) != [nested(found, field)]


@pytest.mark.parametrize("field", ["prompts", "prompts.rows", "group_size", "steps", "lora_rank"])
def test_another_value_is_tried_for_a_size(field: str, tmp_path: Path) -> None:
    found = replace(reading(tmp_path), unclear={field: "x"})
    (other,) = others(found, field, lambda one: one)
    assert (other.prompts, other.group, other.steps, other.lora_rank) != (
        found.prompts,
        found.group,
        found.steps,
        found.lora_rank,
    )


def test_a_second_value_is_tried_where_the_first_does_not_fit(tmp_path: Path) -> None:
    found = replace(reading(tmp_path), unclear={"minibatches": "x"})

    def build(one: Reading) -> int:
        if one.trainer["minibatches"] > 2:
            raise SpecError("no")
        return int(one.trainer["minibatches"])

    assert others(found, "minibatches", build) == [1]


def test_where_none_fits_the_field_has_to_be_known(tmp_path: Path) -> None:
    found = replace(reading(tmp_path), unclear={"epochs": "ppo_epochs is $E"})

    def build(one: Reading) -> int:
        raise SpecError(one.name)

    with pytest.raises(SpecError, match=r"run\.sh: ppo_epochs is \$E, .* it has to be known"):
        others(found, "epochs", build)


def test_a_rounding_is_no_difference() -> None:
    assert moved({"a": 1.0, "b": 2.0, "c": "x"}, {"a": 1.0 + 1e-9, "b": 2.1, "c": "x"}) == ["b"]
