"""What somebody else wrote, a spec, a study's folder, weights, is read as data, within bounds, and runs nothing."""

from __future__ import annotations

import ast
import json
import pickle
import time
from pathlib import Path

import pytest
from fake_study import trial, write_study
from safetensors import SafetensorError
from safetensors.torch import load_file

from kltune.adopt.given import read_given
from kltune.errors import SpecError, StudyError
from kltune.metrics.jsonl import append_rows, read_json, read_rows
from kltune.rewards.classifier import RewardModel
from kltune.rewards.context import RewardContext
from kltune.spec.load import load_spec
from kltune.spec.model import ModelSpec
from kltune.spec.rewards import RewardModelSpec
from kltune.trainer.model import load_model
from kltune.trainer.sources import find_model

PACKAGE = Path(__file__).parents[2] / "kltune"
PICKLES = {
    "launch/worker.py",
    "launch/worker_process.py",
    "tasks/calls_child.py",
    "tasks/calls_probe.py",  # the name of an error alone
}
"""Pipes between processes of kltune: nothing from outside passes there."""


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def names_in(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            found.add("allow_pickle")
    return found


def test_nothing_in_the_package_reads_pickles_but_pipes_between_its_own_processes() -> None:
    unsafe = {
        "pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "torch.load",
        "np.load", "numpy.load", "allow_pickle", "os.system", "pd.read_pickle", "pandas.read_pickle",
    }  # fmt: skip
    found = {
        path.relative_to(PACKAGE).as_posix(): names_in(path) & unsafe
        for path in PACKAGE.rglob("*.py")
    }
    assert {name: hits for name, hits in found.items() if hits and name not in PICKLES} == {}


def test_every_loading_of_weights_asks_for_safetensors() -> None:
    calls = [
        (path.name, ast.unparse(node))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(".from_pretrained")
        and "AutoModel" in ast.unparse(node.func)
    ]
    assert len(calls) >= 3
    for name, call in calls:
        assert "use_safetensors=True" in call or (name == "model.py" and "**safe" in call), call


def model_folder(folder: Path, weights: str, marker: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}), encoding="utf-8")
    (folder / weights).write_bytes(pickle.dumps(Evil(marker)))
    return folder


def test_a_model_that_is_a_pickle_is_refused_and_never_opened(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    folder = model_folder(tmp_path / "model", "pytorch_model.bin", marker)
    with pytest.raises(SpecError, match=r"pytorch_model\.bin is a pickle, which can run any code"):
        find_model(ModelSpec(base=str(folder)), Path)
    assert not marker.exists()


def test_an_adapter_that_is_a_pickle_is_refused_and_never_opened(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    adapter = model_folder(tmp_path / "adapter", "adapter_model.bin", marker)
    (adapter / "adapter_config.json").write_text("{}", encoding="utf-8")
    spec = ModelSpec(base="builtin:kitchen", adapter=str(adapter))
    with pytest.raises(SpecError, match=r"adapter_model\.bin is a pickle"):
        find_model(spec, Path)
    assert not marker.exists()


def test_a_reward_model_that_is_a_pickle_is_refused_and_never_opened(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    folder = model_folder(tmp_path / "model", "pytorch_model.bin", marker)
    config = {"model_type": "llama", "architectures": ["LlamaForSequenceClassification"]}
    (folder / "config.json").write_text(json.dumps({**config, "num_labels": 1}), encoding="utf-8")
    context = RewardContext(field="task.proxy", resolve=Path)
    with pytest.raises(SpecError, match=r"task\.proxy\.model"):
        RewardModel(RewardModelSpec(model=str(folder)), context)
    assert not marker.exists()


@pytest.mark.parametrize(
    "entry",
    [
        {"transformers_weights": "adapter_model.bin"},
        {"text_config": {"transformers_weights": "adapter_model.bin"}},
        {"attribute_map": {"transformers_weights": "mine"}, "mine": "adapter_model.bin"},
    ],
    ids=["plain", "nested", "by another name"],
)
def test_a_configuration_that_has_a_pickle_read_is_refused(
    tmp_path: Path, entry: dict[str, object]
) -> None:
    marker = tmp_path / "ran"
    folder = model_folder(tmp_path / "model", "adapter_model.bin", marker)
    (folder / "model.safetensors").write_bytes(b"")
    config = {
        "model_type": "llama", "architectures": ["LlamaForSequenceClassification"], "hidden_size": 8,
        "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8, "vocab_size": 8, **entry,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    spec = ModelSpec(base=str(folder))
    with pytest.raises(SpecError, match=r"model\.base: .*adapter_model\.bin, a pickle"):
        load_model(spec, find_model(spec, Path), "cpu", "fp32")
    with pytest.raises(SpecError, match=r"task\.proxy\.model: .*adapter_model\.bin, a pickle"):
        RewardModel(
            RewardModelSpec(model=str(folder)), RewardContext(field="task.proxy", resolve=Path)
        )
    assert not marker.exists()


def test_pickles_in_a_checkpoint_are_not_read(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for name in ("slot.safetensors", "slot.json", "adapter.json", "adapter.safetensors"):
        (tmp_path / name).write_bytes(pickle.dumps(Evil(marker)))
    for read in (load_file, read_json):
        for name in ("slot.safetensors", "slot.json"):
            with pytest.raises((StudyError, SafetensorError)):
                read(tmp_path / name)
    assert not marker.exists()


def test_code_that_comes_with_a_model_is_not_run_and_the_switch_is_named(tmp_path: Path) -> None:
    marker, folder = tmp_path / "ran", tmp_path / "model"
    folder.mkdir()
    config = {"model_type": "mine", "auto_map": {
        "AutoConfig": "mine.MyConfig", "AutoModelForCausalLM": "mine.MyModel",
        "AutoTokenizer": ["mine.MyTokenizer", None],
    }}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "mine.py").write_text(f"open({str(marker)!r}, 'w').close()", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"")
    spec = ModelSpec(base=str(folder))
    with pytest.raises(SpecError, match=r"brings code of its own.*model\.trust_remote_code: true"):
        load_model(spec, find_model(spec, Path), "cpu", "fp32")
    assert not marker.exists()


BOMB = "a0: &a0 [1, 1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))
MERGE = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i}\n  <<: [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: !!python/object/apply:os.system ['touch MARK']", "could not determine a constructor"),
        ("a: !!python/name:os.system", "could not determine a constructor"),
        (BOMB, "unfold into more than"),
        (MERGE, "unfold into more than"),
        ("a: &a [*a]", "unfold into more than"),
        ("[" * 50_000, "too deeply nested"),
        ("{a: " * 50_000, "too deeply nested"),
        ("a: " + "9" * 100_000, "Exceeds the limit"),
        ("a: 1\n" * 100_000, "is larger than 256 KiB"),
    ],
    ids=["tag", "name", "references", "merges", "itself", "lists", "maps", "digits", "size"],
)
def test_a_hostile_spec_is_one_sentence_in_seconds(tmp_path: Path, text: str, told: str) -> None:
    path, begin = tmp_path / "hostile.yaml", time.process_time()
    path.write_text(text.replace("MARK", str(tmp_path / "ran")), encoding="utf-8")
    with pytest.raises(SpecError, match=told):
        load_spec(path)
    with pytest.raises(SpecError):
        read_given("verl", path)
    assert time.process_time() - begin < 20
    assert not (tmp_path / "ran").exists()


def test_a_hundred_megabytes_are_not_read(tmp_path: Path) -> None:
    path, begin = tmp_path / "large.yaml", time.process_time()
    with path.open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(SpecError, match="is larger than 256 KiB"):
        load_spec(path)
    assert time.process_time() - begin < 1


def test_deeply_nested_json_in_a_study_is_damage_not_a_crash(tmp_path: Path) -> None:
    deep = "[" * 200_000
    path = tmp_path / "resolved.json"
    path.write_text('{"a": ' + deep, encoding="utf-8")
    with pytest.raises(StudyError, match="not readable as JSON"):
        read_json(path)
    rows = tmp_path / "metrics.jsonl"
    rows.write_text('{"a": ' + deep + '\n{"schema": 1, "step": 1}\n', encoding="utf-8")
    assert read_rows(rows) == [{"schema": 1, "step": 1}]


def test_rows_are_not_appended_through_a_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine\n", encoding="utf-8")
    (tmp_path / "metrics.jsonl").symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic link"):
        append_rows(tmp_path / "metrics.jsonl", [{"step": 1}])
    assert elsewhere.read_text(encoding="utf-8") == "mine\n"


def test_nothing_of_this_is_in_the_way_of_an_ordinary_study(tmp_path: Path) -> None:
    study = write_study(tmp_path / "study", [trial(0.1)])
    assert read_json(study / "resolved.json")["name"] == "kitchen"
