"""Prompts that are too long are refused or dropped, with a count, and never cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_files import own_task, write

from kltune.errors import SpecError
from kltune.launch.assemble import Inputs, find_inputs, load_ground
from kltune.spec.load import LoadedSpec, load_spec

REWARDS = (
    "def proxy(completions): return [float(len(c)) for c in completions]\n"
    "def gold(completions): return [float(c.count('a')) for c in completions]\n"
)


def spec_of(folder: Path, long: int, *overrides: str) -> LoadedSpec:
    """24 short prompts and ``long`` long ones."""
    spec = own_task(folder)
    (folder / "rewards.py").write_text(REWARDS, encoding="utf-8")
    texts = [f"{i} eggs" for i in range(24)] + [f"{i} " + "eggs " * 40 for i in range(long)]
    (folder / "prompts.txt").write_text("\n".join(texts), encoding="utf-8")
    return load_spec(write(folder, spec), ("trainer.max_prompt_tokens=24", *overrides))


def sizes(inputs: Inputs) -> int:
    splits = inputs.task.splits
    return len(splits.train) + len(splits.select) + len(splits.test)


def test_long_prompts_are_refused_with_their_count_and_the_longest(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, 8)
    inputs = find_inputs(spec)
    with pytest.raises(SpecError) as caught:
        load_ground(spec.spec, inputs, None)
    told = str(caught.value)
    num_long = sum(len(prompt.text) > 40 for prompt in inputs.task.splits.train)
    assert (
        f"{num_long} of {len(inputs.task.splits.train)} train prompts have more than 24 tokens"
        in told
    )
    assert "long_prompts: drop" in told


def test_long_prompts_are_dropped_on_request_with_a_count_in_a_note(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, 8, "trainer.long_prompts=drop")
    inputs = find_inputs(spec)
    assert sizes(inputs) == 24
    assert all("prompts have more than 24 tokens" in note for note in inputs.task.splits.notes[-1:])
    ground = load_ground(spec.spec, inputs, None)
    assert ground.data.train.prompts == inputs.task.splits.train
    assert ground.data.train.width <= 24


def test_other_prompts_after_dropping_have_another_digest(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, 8)
    dropped = find_inputs(spec_of(tmp_path, 8, "trainer.long_prompts=drop")).task
    assert find_inputs(spec).task.digests["train"] != dropped.digests["train"]


def test_a_split_that_dropping_leaves_too_small_is_refused(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, 8, "trainer.long_prompts=drop", "trainer.max_prompt_tokens=1")
    with pytest.raises(SpecError, match=r"trainer\.long_prompts: .* train prompts .* are left"):
        find_inputs(spec)


def test_dropping_needs_to_know_what_is_long(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="drop needs max_prompt_tokens"):
        spec_of(tmp_path, 0, "trainer.max_prompt_tokens=null", "trainer.long_prompts=drop")


def test_stop_strings_and_the_answer_mark_reach_the_model(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, 0, "trainer.stop=[' a']", "model.answer_after=END")
    rules = load_ground(spec.spec, find_inputs(spec), None).loaded.text_rules
    assert (rules.stop, rules.answer_after) == ((" a",), "END")
