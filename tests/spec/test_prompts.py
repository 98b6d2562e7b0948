from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from kltune.spec.prompts import PromptsSpec, SplitNames, SplitsSpec, format_of
from kltune.spec.task import TaskSpec

NAMES = {"train": "train", "select": "train", "test": "validation"}


def task(prompts: object) -> TaskSpec:
    return TaskSpec.model_validate({"prompts": prompts, "proxy": "a:f", "gold": "a:g"})


def refusal(**fields: object) -> str:
    with pytest.raises(ValidationError) as caught:
        task(fields)
    return str(caught.value)


def test_a_path_alone_or_a_table_are_prompts() -> None:
    assert task("p.jsonl").prompts == "p.jsonl"
    spec = task({"path": "p.csv", "prompt": "question", "columns": {"truth": "answer"}}).prompts
    assert isinstance(spec, PromptsSpec)
    assert (spec.prompt, spec.columns, spec.split) == ("question", {"truth": "answer"}, None)


def test_a_split_is_a_column_or_the_names_of_the_sources_own() -> None:
    assert PromptsSpec(path="p.csv", split="part").split == "part"
    spec = PromptsSpec.model_validate({"dataset": "o/n", "split": NAMES})
    assert isinstance(spec.split, SplitNames)
    assert spec.split.sources() == {"train": ["train", "select"], "validation": ["test"]}


def test_a_spec_comes_back_from_its_json() -> None:
    spec = task({"dataset": "o/n", "config": "main", "revision": "abc", "split": NAMES})
    assert TaskSpec.model_validate(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "give path or dataset"),
        ({"path": "a", "dataset": "b"}, "give path or dataset"),
        ({"path": "a", "revision": "b"}, "revision: only with dataset"),
        ({"dataset": "a", "format": "csv"}, "a dataset has its own"),
        ({"dataset": "a", "split": {**NAMES, "column": "c"}}, "split.column"),
        ({"path": "a", "split": {"train": "x"}}, "select"),
        ({"path": "a", "columns": {"prompts": "x"}}, "a name that scorers use"),
        ({"path": "a", "columns": {"two words": "x"}}, "argument can have"),
        ({"path": "a", "columns": {"split": "x"}}, "a place of its own"),
        ({"path": "a", "limit": 0}, "greater than 0"),
        ({"path": "a", "where": "x > 1"}, "Extra inputs"),
        ({"path": "a", "format": "xlsx"}, "jsonl"),
    ],
)
def test_what_makes_no_source_is_refused_by_field(fields: dict[str, object], told: str) -> None:
    assert told in refusal(**fields)


def test_a_full_source_says_configuration_and_revision() -> None:
    spec = PromptsSpec(dataset="o/n", config="main", revision="abc")
    assert spec.full_source == "o/n:main@abc"
    assert PromptsSpec(path="p.csv").full_source == "p.csv"


def test_the_ending_says_the_format_and_a_folder_what_is_in_it(tmp_path: Path) -> None:
    names = ("a.jsonl", "a.CSV", "a.tsv", "a.parquet", "a.txt", "a.xlsx")
    found = [format_of(Path(name)) for name in names]
    assert found == ["jsonl", "csv", "csv", "parquet", "text", None]
    assert format_of(tmp_path) is None
    (tmp_path / "0.parquet").touch()
    assert format_of(tmp_path) == "parquet"
    (tmp_path / "state.json").touch()
    assert format_of(tmp_path) == "datasets"


def test_near_duplicates_are_told_unless_the_spec_says_otherwise() -> None:
    assert SplitsSpec().near_duplicates == "warn"
