from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spec_files import minimal, own_task, write

from kltune.errors import SpecError
from kltune.spec.checks import check_paths
from kltune.spec.load import load_spec


def complaints(folder: Path, spec: dict[str, Any]) -> list[str]:
    """What check_paths says, the model left out where the test doesn't give one."""
    try:
        check_paths(load_spec(write(folder, spec)))
    except SpecError as error:
        return [line.strip() for line in str(error).splitlines()[1:]]
    return []


def model_folder(folder: Path) -> Path:
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").touch()
    return model


def with_model(folder: Path, base: str, **more: str) -> dict[str, Any]:
    return {**own_task(folder), "model": {"base": base, **more}}


def test_a_task_and_a_model_that_are_there_pass(tmp_path: Path) -> None:
    assert complaints(tmp_path, with_model(tmp_path, str(model_folder(tmp_path)))) == []


def test_all_missing_paths_are_in_one_message(tmp_path: Path) -> None:
    spec = with_model(tmp_path, "./gone")
    spec["task"] = {"prompts": "gone.txt", "proxy": "gone.py:f", "gold": "gone.py:g"}
    fields = [line.split(":")[0] for line in complaints(tmp_path, spec)]
    assert fields == ["model.base", "task.prompts", "task.proxy", "task.gold"]


@pytest.mark.parametrize("base", ["./gone", "/gone/away", "a/b/c", "~/gone-model", "gone/"])
def test_a_missing_model_folder_is_named(tmp_path: Path, base: str) -> None:
    (line,) = complaints(tmp_path, with_model(tmp_path, base))
    assert line.startswith("model.base: no such folder: ")


def test_a_hub_id_is_not_taken_for_a_folder(tmp_path: Path) -> None:
    assert complaints(tmp_path, with_model(tmp_path, "owner/some-model-1.5B")) == []
    assert complaints(tmp_path, with_model(tmp_path, "gpt2")) == []


def test_an_owner_that_is_a_folder_means_a_mistyped_folder(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (line,) = complaints(tmp_path, with_model(tmp_path, "models/mine"))
    assert line.startswith("model.base: no such folder: ")


@pytest.mark.parametrize(
    ("missing", "told"), [("config.json", "no config.json"), ("model.safetensors", "no weights")]
)
def test_a_folder_without_a_model_is_refused(tmp_path: Path, missing: str, told: str) -> None:
    model = model_folder(tmp_path)
    (model / missing).unlink()
    (line,) = complaints(tmp_path, with_model(tmp_path, "model"))
    assert told in line


def test_a_gguf_is_named_beside_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "quantised"
    folder.mkdir()
    (folder / "m.gguf").touch()
    assert complaints(tmp_path, with_model(tmp_path, "quantised", gguf_file="m.gguf")) == []
    (line,) = complaints(tmp_path, with_model(tmp_path, "quantised", gguf_file="x.gguf"))
    assert "no x.gguf in" in line
    (line,) = complaints(tmp_path, with_model(tmp_path, "quantised/m.gguf"))
    assert "is a file; name its folder" in line


@pytest.mark.parametrize(
    ("base", "told"),
    [
        (
            "builtin:kitchn",
            "no built-in model 'kitchn'; built in: kitchen, kitchen-small, kitchen-large",
        ),
        ("package:no_such_package", "'no_such_package' is not installed here: pip install no-such"),
        ("package:json", "the package 'json' holds no *.gguf"),
        ("package:os.path", "needs the name of an importable package"),
        ("package:__main__", "is not installed"),
    ],
)
def test_built_in_and_packaged_models_must_be_there(tmp_path: Path, base: str, told: str) -> None:
    (line,) = complaints(tmp_path, with_model(tmp_path, base))
    assert told in line


def test_a_package_is_searched_for_its_gguf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "packed_model"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('a check never runs foreign code')")
    (package / "one.gguf").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert complaints(tmp_path, with_model(tmp_path, "package:packed_model")) == []
    (package / "two.gguf").touch()
    (line,) = complaints(tmp_path, with_model(tmp_path, "package:packed_model"))
    assert "holds several GGUF files" in line
    named = with_model(tmp_path, "package:packed_model", gguf_file="two.gguf")
    assert complaints(tmp_path, named) == []


def test_an_unknown_built_in_task_is_refused(tmp_path: Path) -> None:
    spec = {**minimal(), "task": "kichen", "model": {"base": str(model_folder(tmp_path))}}
    (line,) = complaints(tmp_path, spec)
    assert line.startswith("task: no built-in task 'kichen'; built in: ")
    assert "kitchen" in line


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("prompts.xlsx", b"x", "must be a .jsonl, .json, .csv, .tsv, .parquet or .txt file"),
        ("prompts.jsonl", b"\xff\xfe", "is not UTF-8 text (byte 0)"),
        ("prompts.txt", b" \n\n", "holds no prompts"),
        ("prompts.jsonl", None, "can't be read: Is a directory"),
    ],
)
def test_unreadable_prompts_are_refused(
    tmp_path: Path, name: str, content: bytes | None, told: str
) -> None:
    spec = with_model(tmp_path, "gpt2")
    spec["task"]["prompts"] = name
    if content is None:
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_bytes(content)
    (line,) = complaints(tmp_path, spec)
    assert line.startswith("task.prompts: ")
    assert told in line


def test_a_function_that_its_file_lacks_is_refused(tmp_path: Path) -> None:
    spec = with_model(tmp_path, "gpt2")
    spec["task"]["gold"] = "rewards.py:golden"
    (line,) = complaints(tmp_path, spec)
    assert line.endswith("defines no 'golden' (it defines gold, proxy)")


@pytest.mark.parametrize(
    "code",
    [
        "from somewhere import gold\ndef proxy(): ...",
        "gold = proxy = len",
        "gold: object = len\nproxy = 1",
        "from somewhere import *",
        "if True:\n    def gold(): ...\n    def proxy(): ...",
    ],
)
def test_a_function_defined_in_another_way_is_not_refused(tmp_path: Path, code: str) -> None:
    spec = with_model(tmp_path, "gpt2")
    (tmp_path / "rewards.py").write_text(code)
    assert complaints(tmp_path, spec) == []


def test_a_file_that_is_no_python_is_refused(tmp_path: Path) -> None:
    spec = with_model(tmp_path, "gpt2")
    (tmp_path / "rewards.py").write_text("def gold(:")
    lines = complaints(tmp_path, spec)
    assert len(lines) == 2
    assert all("is not Python" in line for line in lines)


def test_gold_and_proxy_must_not_be_the_same_function(tmp_path: Path) -> None:
    spec = with_model(tmp_path, "gpt2")
    spec["task"]["gold"] = "./rewards.py:proxy"  # the same file by another path
    (line,) = complaints(tmp_path, spec)
    assert line.startswith("task.gold: is the same function as task.proxy")
    spec["task"] |= {"gold": "pkg.mod:score", "proxy": "pkg.mod:score"}
    (line,) = complaints(tmp_path, spec)
    assert "is the same function" in line
    spec["task"]["proxy"] = {"learned": {"from": "gold"}}
    assert complaints(tmp_path, spec) == []


def test_a_further_gold_is_looked_for_and_held_against_the_proxy(tmp_path: Path) -> None:
    spec = own_task(tmp_path)
    spec["task"]["golds"] = {"one": "rewards.py:nothing", "two": "rewards.py:proxy"}
    with pytest.raises(SpecError) as refused:
        check_paths(load_spec(write(tmp_path, spec)))
    text = str(refused.value)
    assert "task.golds.one: " in text
    assert "defines no 'nothing'" in text
    assert "task.golds.two: is the same function as task.proxy" in text
