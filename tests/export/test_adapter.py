"""Names and files of a PEFT folder, from made-up checkpoints; that `peft` loads it is shown in tests/launch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tripwire_case as case
from safetensors.numpy import load_file, save_file

from kltune.errors import ExitCode, RunError, SpecError, StudyError
from kltune.export.adapter import Adapter, BaseLayers, read_adapter, write_peft

LINEAR = {
    "model.layers.0.q_proj": (6, 4),
    "model.layers.0.up": (8, 4),
    "lm_head": (30, 4),
}
BASE = BaseLayers("org/base", None, "model", LINEAR)
RANK = 2


def adapter() -> Adapter:
    tensors: dict[str, np.ndarray] = {}
    for name, outputs, inputs in (("layers.0.q_proj", 6, 4), ("layers.0.up", 8, 4)):
        tensors[f"{name}.lora_A.weight"] = np.full((RANK, inputs), 0.5, np.float32)
        tensors[f"{name}.lora_B.weight"] = np.full((outputs, RANK), 0.25, np.float32)
    return Adapter(60, RANK, 4, ("layers.0.q_proj", "layers.0.up"), tensors)


def save(study: Path, found: Adapter, name: str = "best") -> Path:
    folder = study / "trials" / "00007" / "checkpoints" / name
    folder.mkdir(parents=True)
    facts = {"schema": 1, "trial": 7, "step": found.step, "rank": found.rank, "alpha": 4.0}
    text = json.dumps({**facts, "targets": found.targets})
    (folder / "adapter.json").write_text(text, encoding="utf-8")
    save_file(dict(found.tensors), folder / "adapter.safetensors")
    return folder


def test_weights_get_their_full_names_in_the_base(tmp_path: Path) -> None:
    out = write_peft(adapter(), BASE, case.winner(), tmp_path / "out").path
    found = load_file(out / "adapter_model.safetensors")
    assert sorted(found) == [
        "base_model.model.model.layers.0.q_proj.lora_A.weight",
        "base_model.model.model.layers.0.q_proj.lora_B.weight",
        "base_model.model.model.layers.0.up.lora_A.weight",
        "base_model.model.model.layers.0.up.lora_B.weight",
    ]
    assert found["base_model.model.model.layers.0.up.lora_B.weight"].shape == (8, RANK)


def test_the_configuration_says_rank_alpha_and_base(tmp_path: Path) -> None:
    out = write_peft(adapter(), BASE, case.winner(), tmp_path / "out").path
    config = json.loads((out / "adapter_config.json").read_text(encoding="utf-8"))
    told = {k: config[k] for k in ("peft_type", "r", "lora_alpha", "base_model_name_or_path")}
    assert told == {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": 4,
        "base_model_name_or_path": "org/base",
    }
    assert config["target_modules"] == ["q_proj", "up"]


def test_a_last_name_that_would_choose_another_layer_too_is_written_in_full(
    tmp_path: Path,
) -> None:
    base = replace(BASE, linear={**LINEAR, "vision.up": (8, 4)})
    out = write_peft(adapter(), base, case.winner(), tmp_path / "out").path
    config = json.loads((out / "adapter_config.json").read_text(encoding="utf-8"))
    assert config["target_modules"] == ["model.layers.0.q_proj", "model.layers.0.up"]


def test_a_body_that_is_the_model_adds_no_name(tmp_path: Path) -> None:
    base = replace(BASE, body="", linear={k.removeprefix("model."): v for k, v in LINEAR.items()})
    out = write_peft(adapter(), base, case.winner(), tmp_path / "out").path
    names = load_file(out / "adapter_model.safetensors")
    assert "base_model.model.layers.0.up.lora_A.weight" in names


def test_the_checkpoint_is_read_as_it_was_saved(tmp_path: Path) -> None:
    save(tmp_path, adapter())
    found = read_adapter(tmp_path, case.winner())
    assert (found.step, found.rank, found.alpha, found.targets) == (60, 2, 4, adapter().targets)
    assert all((found.tensors[k] == v).all() for k, v in adapter().tensors.items())


def test_a_crash_between_two_renames_leaves_the_one_before(tmp_path: Path) -> None:
    save(tmp_path, adapter(), "best.old")
    assert read_adapter(tmp_path, case.winner()).step == 60


def test_a_checkpoint_that_is_gone_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="gone, so there is no adapter to export") as caught:
        read_adapter(tmp_path, case.winner())
    assert caught.value.exit_code == ExitCode.USAGE
    assert "--trial takes another" in str(caught.value)


def test_a_study_that_trained_all_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"model\.finetune: full"):
        read_adapter(tmp_path, case.winner(lora_rank=None))


@pytest.mark.parametrize("name", ["adapter.json", "adapter.safetensors"])
def test_a_damaged_checkpoint_is_told(tmp_path: Path, name: str) -> None:
    folder = save(tmp_path, adapter())
    (folder / name).write_bytes(b"{")
    with pytest.raises(RunError, match="can't be read"):
        read_adapter(tmp_path, case.winner())


@pytest.mark.parametrize(
    ("linear", "told"),
    [
        ({**LINEAR, "model.layers.0.up": (9, 4)}, r"up.lora_B must be 9 x 2, it is 8 x 2"),
        ({k: v for k, v in LINEAR.items() if "up" not in k}, r"up.lora_A must be 2 x 0"),
    ],
)
def test_another_base_is_noticed_and_nothing_is_left(
    tmp_path: Path, linear: dict[str, tuple[int, int]], told: str
) -> None:
    with pytest.raises(RunError, match=told):
        write_peft(adapter(), replace(BASE, linear=linear), case.winner(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x", encoding="utf-8")
    with pytest.raises(SpecError, match="there already and not empty"):
        write_peft(adapter(), BASE, case.winner(), tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mine"]
    (tmp_path / "empty").mkdir()
    assert write_peft(adapter(), BASE, case.winner(), tmp_path / "empty").step == 60


def test_another_step_than_the_gold_peaks_is_said(tmp_path: Path) -> None:
    early = replace(adapter(), step=50)
    told = write_peft(early, BASE, case.winner(), tmp_path / "out").warnings
    assert any("step 50" in warning and "step 60" in warning for warning in told)
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "Gold:" not in readme
    assert write_peft(adapter(), BASE, case.winner(), tmp_path / "same").warnings == ()
    assert "Gold: 0.7" in (tmp_path / "same" / "README.md").read_text(encoding="utf-8")


def test_a_gguf_base_is_warned_of_and_loaded_by_the_readme(tmp_path: Path) -> None:
    base = replace(BASE, gguf_file="a.gguf")
    told = write_peft(adapter(), base, case.winner(), tmp_path / "out").warnings
    assert any("GGUF" in warning for warning in told)
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert 'from_pretrained("org/base", gguf_file="a.gguf"' in readme


def test_a_base_in_a_folder_is_said_to_be_of_this_machine(tmp_path: Path) -> None:
    base = replace(BASE, address=str(tmp_path / "base"))
    (warning,) = write_peft(adapter(), base, case.winner(), tmp_path / "out").warnings
    assert "base_model_name_or_path" in warning
