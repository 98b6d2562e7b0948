from __future__ import annotations

import math
from typing import Any

import pytest
from export_case import TOKENS, target, winner

from kltune.errors import SpecError


def test_what_is_not_given_is_the_studys() -> None:
    found = target(winner(), "verl")
    assert (found.batch, found.group, found.prompts) == (64, 8, 8)
    assert (found.mean_tokens, found.max_new_tokens) == (TOKENS, 32)
    assert found.is_studied
    assert found.whose("batch") == "the study's own; --batch sets yours"
    assert found.version == "0.9.0"


def test_what_is_given_holds_and_is_named_by_its_flag() -> None:
    found = target(winner(), "verl", batch=8192, group=16, mean_tokens=300, max_new_tokens=1024)
    assert (found.batch, found.group, found.prompts) == (8192, 16, 512)
    assert found.whose("max_new_tokens") == "--max-new-tokens"
    assert not found.is_studied
    assert found.warnings == ()


def test_a_length_limit_without_a_mean_length_is_warned_of() -> None:
    (doubt,) = target(winner(), "trl", max_new_tokens=1024).warnings
    assert "24 tokens" in doubt


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        ({"batch": 30}, "30 completions are no multiple of the group of 8"),
        ({"group": 1}, "at least 2 completions"),
        ({"mean_tokens": 0.0}, "must be a number above 0"),
        ({"mean_tokens": math.nan}, "must be a number above 0"),
        ({"mean_tokens": math.inf}, "must be a number above 0"),
        ({"mean_tokens": 40.0}, "above the limit of 32 tokens"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        target(winner(), "trl", **sizes)


def test_a_version_may_be_written_as_a_tag() -> None:
    found = target(winner(), "verl", "v0.7.1")
    assert (found.version, found.number, found.keys.version) == ("0.7.1", (0, 7, 1), "0.7.1")


@pytest.mark.parametrize("algorithm", ["ppo", "reinforce"])
def test_one_completion_per_prompt_will_do_where_nothing_is_compared_within_a_group(
    algorithm: str,
) -> None:
    found = winner("k1-reward", trainer={"algorithm": algorithm})
    assert target(found, "verl", group=1).prompts == 64
