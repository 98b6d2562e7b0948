"""Folders that ``datasets`` saved, and the hub's refusals, with the real library and no network."""

from __future__ import annotations

import builtins
import importlib
from pathlib import Path
from typing import Any

import pytest

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.spec.prompts import PromptsSpec, SplitsSpec
from kltune.tasks.prompts import load_source
from kltune.tasks.protocol import Splits

datasets: Any = pytest.importorskip("datasets")


def load(folder: Path, **fields: object) -> Splits:
    spec = PromptsSpec.model_validate({"path": "saved", **fields})
    return load_source(spec, SplitsSpec(), lambda name: folder / name)


def rows(part: str, count: int) -> list[dict[str, Any]]:
    return [
        {"question": f"{part} {i}", "answer": {"value": i, "steps": [f"s{i}"]}}
        for i in range(count)
    ]


def save(folder: Path, **counts: int) -> None:
    made = {part: datasets.Dataset.from_list(rows(part, n)) for part, n in counts.items()}
    datasets.DatasetDict(made).save_to_disk(str(folder / "saved"))


def test_a_saved_dict_gives_its_own_splits_and_nested_columns(tmp_path: Path) -> None:
    save(tmp_path, train=6, test=3)
    splits = load(
        tmp_path, prompt="question", split={"train": "train", "select": "train", "test": "test"}
    )
    assert [len(splits.train), len(splits.select), len(splits.test)] == [4, 2, 3]
    assert splits.test[1].id == "test-2"
    assert dict(splits.test[1].columns) == {"answer": {"value": 1, "steps": ["s1"]}}


def test_a_saved_dict_with_other_splits_asks_which_is_which(tmp_path: Path) -> None:
    save(tmp_path, train=6, validation=3)
    with pytest.raises(SpecError, match="the data set has the splits train, validation: say which"):
        load(tmp_path, prompt="question")


def test_a_saved_data_set_without_splits_is_divided_by_shares(tmp_path: Path) -> None:
    datasets.Dataset.from_list(rows("x", 8)).save_to_disk(str(tmp_path / "saved"))
    splits = load(tmp_path, prompt="question")
    assert [len(splits.train), len(splits.select), len(splits.test)] == [4, 2, 2]


def test_one_split_alone_is_divided_by_shares(tmp_path: Path) -> None:
    save(tmp_path, train=8)
    splits = load(tmp_path, prompt="question")
    assert [len(splits.train), len(splits.select), len(splits.test)] == [4, 2, 2]


def test_a_folder_of_something_else_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    with pytest.raises(SpecError, match=r"must be a \.jsonl"):
        load(tmp_path)
    with pytest.raises(SpecError, match="not readable as a folder of datasets"):
        load(tmp_path, format="datasets")
    with pytest.raises(SpecError, match="no such folder"):
        load(tmp_path, path="none", format="datasets")


@pytest.mark.parametrize(
    ("error", "exit_code", "told"),
    [
        ("DatasetNotFoundError", 5, "gated"),
        ("ConnectionError", 5, "HF_HUB_OFFLINE"),
        ("ValueError", 2, "Config name is missing"),
    ],
)
def test_what_the_hub_refuses_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, error: str, exit_code: int, told: str
) -> None:
    raised = getattr(datasets.exceptions, error, None) or getattr(builtins, error)

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise raised("Config name is missing.\nPlease pick one")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises((SpecError, EnvironmentMissingError)) as caught:
        load_source(PromptsSpec(dataset="owner/name"), SplitsSpec(), Path)
    assert caught.value.exit_code == exit_code
    assert "task.prompts.dataset: " in str(caught.value)
    assert "'owner/name'" in str(caught.value)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_data_set_of_the_hub_is_asked_for_by_configuration_and_revision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[Any, ...]] = []

    def give(*args: object, **kwargs: object) -> object:
        asked.append((*args, kwargs))
        return datasets.Dataset.from_list([{"prompt": f"p{i}"} for i in range(8)])

    monkeypatch.setattr(datasets, "load_dataset", give)
    spec = PromptsSpec(dataset="owner/name", config="main", revision="abc")
    splits = load_source(spec, SplitsSpec(), Path)
    assert asked == [("owner/name", "main", {"revision": "abc"})]  # and no word of trust
    assert len(splits.train) == 4


def test_offline_the_real_library_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(EnvironmentMissingError, match="the hub does not give 'owner/absent'"):
        load_source(PromptsSpec(dataset="owner/absent"), SplitsSpec(), Path)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(EnvironmentMissingError, match=r"kltune\[datasets\]"):
        load_source(PromptsSpec(dataset="owner/name"), SplitsSpec(), Path)
