from __future__ import annotations

import csv
from pathlib import Path

import pytest

from kltune.errors import SpecError
from kltune.spec.prompts import PromptsSpec, SplitsSpec
from kltune.tasks.prompts import load_source
from kltune.tasks.protocol import Prompt, Splits

LONG = "a train leaves the old station at nine and arrives in the next town two hours later so how fast was it"


def load(folder: Path, rows: list[tuple[str, ...]], **fields: object) -> Splits:
    shares = SplitsSpec.model_validate(fields.pop("splits", {}))
    with (folder / "p.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    spec = PromptsSpec.model_validate({"path": "p.csv", **fields})
    return load_source(spec, shares, lambda name: folder / name)


def refusal(folder: Path, rows: list[tuple[str, ...]], **fields: object) -> str:
    with pytest.raises(SpecError) as caught:
        load(folder, rows, **fields)
    return str(caught.value)


def rows_of(**counts: int) -> list[tuple[str, ...]]:
    made = [(f"{part} number {i}", part) for part, count in counts.items() for i in range(count)]
    return [("prompt", "split"), *made]


def texts(prompts: tuple[Prompt, ...]) -> list[str]:
    return [prompt.text for prompt in prompts]


NAMES = {"train": "training", "select": "dev", "test": "held"}


def test_the_sources_own_names_say_which_is_which(tmp_path: Path) -> None:
    splits = load(tmp_path, rows_of(training=3, dev=2, held=2), split=NAMES)
    assert texts(splits.train) == [f"training number {i}" for i in range(3)]
    assert texts(splits.test) == ["held number 0", "held number 1"]
    assert splits.notes == ()


def test_parts_that_name_the_same_split_share_it_by_the_seed(tmp_path: Path) -> None:
    names = {"train": "training", "select": "training", "test": "held"}
    rows = rows_of(training=9, held=2)
    first = load(tmp_path, rows, split=names)
    assert [len(first.train), len(first.select), len(first.test)] == [6, 3, 2]
    assert not set(texts(first.train)) & set(texts(first.select))
    assert load(tmp_path, rows, split=names, splits={"seed": 5}) != first


def test_rows_of_other_splits_are_left_out_and_counted(tmp_path: Path) -> None:
    splits = load(tmp_path, rows_of(training=2, dev=2, held=2, extra=4), split=NAMES)
    assert splits.notes == ("task.prompts: 4 lines are of splits that the spec leaves out",)


def test_a_split_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    told = refusal(tmp_path, rows_of(training=2, dev=2), split=NAMES)
    assert "split.test: there is no split 'held' (splits: training, dev)" in told


def test_a_given_split_that_is_too_small_is_named(tmp_path: Path) -> None:
    told = refusal(tmp_path, rows_of(training=4, dev=1, held=2), split=NAMES)
    assert "split select has 1 distinct prompt(s), at least 2 are needed" in told
    assert "split train" not in told


def test_a_limit_draws_rows_by_the_seed_and_says_so(tmp_path: Path) -> None:
    rows = rows_of(training=40, dev=20, held=20)
    first = load(tmp_path, rows, split=NAMES, limit=40)
    assert len(first.train) + len(first.select) + len(first.test) == 40
    assert first.notes == ("task.prompts: 40 of 80 lines, drawn (task.prompts.limit)",)
    assert texts(first.train) == sorted(
        texts(first.train), key=lambda text: int(text.split()[-1])
    )  # the file's order
    assert load(tmp_path, rows, split=NAMES, limit=40) == first
    assert load(tmp_path, rows, split=NAMES, limit=40, splits={"seed": 1}) != first


def with_near() -> list[tuple[str, ...]]:
    near = [(f"{LONG} {part}?", part) for part in ("training", "dev")]
    return [*rows_of(training=3, dev=3, held=3), *near]


def test_near_duplicates_across_splits_are_told_with_examples(tmp_path: Path) -> None:
    splits = load(tmp_path, with_near(), split=NAMES)
    assert len(splits.doubts) == 1
    assert "1 of 4 train prompts share 80 % or more of their three-word runs" in splits.doubts[0]
    assert "'a train leaves the old station at nine …' /" in splits.doubts[0]
    assert "near_duplicates: drop drops them" in splits.doubts[0]


def test_near_duplicates_are_dropped_from_the_earlier_split_on_request(tmp_path: Path) -> None:
    asked = {"near_duplicates": "drop"}
    rows = [*with_near(), (" DEV number 1", "training")]
    splits = load(tmp_path, rows, split=NAMES, splits=asked)
    assert [len(splits.train), len(splits.select)] == [3, 4]
    assert "dropped 2 of 5 train prompts" in splits.notes[0]
    assert splits.doubts == ()


def test_near_duplicates_are_refused_on_request(tmp_path: Path) -> None:
    told = refusal(tmp_path, with_near(), split=NAMES, splits={"near_duplicates": "refuse"})
    assert "1 of 4 train prompts share" in told


def test_equal_prompts_in_two_splits_are_refused_with_the_way_out(tmp_path: Path) -> None:
    rows = [*rows_of(training=3, dev=3, held=3), ("DEV  number 1", "training")]
    told = refusal(tmp_path, rows, split=NAMES)
    assert "lines 11 (train), 6 (select): the same prompt in more than one split" in told
    assert "task.splits.near_duplicates: drop drops them" in told


def test_repeats_within_a_split_are_counted(tmp_path: Path) -> None:
    rows = [*rows_of(training=3, dev=3, held=3), ("Training number 1", "training")]
    splits = load(tmp_path, rows, split=NAMES)
    assert splits.notes == ("task.prompts: 1 of 4 train prompts repeat another of that split",)
