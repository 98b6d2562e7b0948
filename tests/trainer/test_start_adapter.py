"""A PEFT folder as the start, held against peft itself; what is no plain LoRA of this base is refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import architectures
import pytest
import tiny
import torch
from accelerate.state import AcceleratorState
from safetensors.torch import load_file, save_file
from start_case import load, logits, saved_adapter, saved_base

from kltune.errors import SpecError
from kltune.trainer.bank import Bank
from kltune.trainer.start_adapter import merge_start, read_start

pytestmark = pytest.mark.filterwarnings("ignore")  # peft's own


@pytest.fixture(autouse=True)
def _own_accelerate_state() -> Iterator[None]:
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("llama", {}),
        ("gpt2-conv1d", {"fan_in_fan_out": True}),
        ("phi3-fused", {"use_rslora": True}),
        ("qwen3", {"target_modules": ["q_proj", "up_proj"], "rank_pattern": {"q_proj": 2},
                   "alpha_pattern": {"layers.1.mlp.up_proj": 40}}),
    ],
)  # fmt: skip
def test_the_start_is_what_peft_makes_of_the_folder(
    tmp_path: Path, name: str, config: dict[str, object]
) -> None:
    base = saved_base(name, tmp_path / "base")
    theirs = saved_adapter(architectures.plain(name).eval(), tmp_path / "sft", **config)
    loaded = load(base, tmp_path / "sft")
    torch.testing.assert_close(logits(loaded), logits(theirs), rtol=1e-5, atol=1e-4)
    assert float((logits(loaded) - logits(load(base, None))).abs().max()) > 0.1


def test_the_reference_includes_the_start_adapter(tmp_path: Path) -> None:
    # field case A13
    base = saved_base("llama", tmp_path / "base")
    theirs = saved_adapter(architectures.plain("llama").eval(), tmp_path / "sft")
    model = load(base, tmp_path / "sft")
    assert model.fused is not None
    bank = Bank(model, tiny.task_data(model), tiny.settings(prompts=8), tiny.MODEL, 1)
    bank.admit(0, 0, tiny.trial(), None)
    (evaluation,) = bank.evaluate([0])
    assert abs(evaluation.kl_seq) <= 1e-6
    steps = [bank.train_step()[0] for _ in range(3)]
    assert abs(steps[0].kl_token) <= 1e-6
    assert steps[-1].kl_token > 0
    with bank.parts.stack.use(None):
        torch.testing.assert_close(logits(model), logits(theirs), rtol=1e-5, atol=1e-4)


def test_an_adapter_of_another_base_is_refused(tmp_path: Path) -> None:
    base = saved_base("llama", tmp_path / "base")
    saved_adapter(architectures.plain("qwen3"), tmp_path / "wide")
    with pytest.raises(
        SpecError,
        match=r"belongs to another base.*k_proj is 24 x 32 in it, and this model has 16 x 32 there",
    ):
        load(base, tmp_path / "wide")
    saved_adapter(architectures.plain("gpt2-conv1d"), tmp_path / "gpt2", fan_in_fan_out=True)
    with pytest.raises(SpecError, match="has no such linear layer") as caught:
        load(base, tmp_path / "gpt2")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("trained_on", "base", "is_refused"),
    [
        ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B-Instruct", True),
        ("unsloth/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5b", False),
        ("/models/x", "Qwen/Qwen2.5-0.5B", False),
        ("", "Qwen/Qwen2.5-0.5B", False),
    ],
)
def test_equal_shapes_of_another_hub_model_are_refused_by_name(
    tmp_path: Path, trained_on: str, base: str, is_refused: bool
) -> None:
    saved_adapter(architectures.plain("llama"), tmp_path)
    change(tmp_path, base_model_name_or_path=trained_on)
    start = read_start(tmp_path)
    if not is_refused:
        merge_start(architectures.plain("llama"), start, base)
        return
    with pytest.raises(SpecError, match=f"was trained on {trained_on}, not on {base}"):
        merge_start(architectures.plain("llama"), start, base)


def change(folder: Path, **fields: object) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields), encoding="utf-8")


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"peft_type": "IA3"}, "peft_type IA3"),
        ({"use_dora": True}, "use_dora"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"bias": "all"}, "bias all"),
    ],
)
def test_more_than_lora_is_refused(tmp_path: Path, fields: dict[str, object], fault: str) -> None:
    saved_adapter(architectures.plain("llama"), tmp_path)
    change(tmp_path, **fields)
    with pytest.raises(
        SpecError, match=rf"more than LoRA on linear layers \({fault}\): merge it with peft"
    ):
        read_start(tmp_path)


def test_a_head_that_is_the_embedding_is_not_changed_in_passing(tmp_path: Path) -> None:
    saved_adapter(architectures.plain("llama-tied"), tmp_path, target_modules=["lm_head"])
    with pytest.raises(SpecError, match="whose weights are the embedding's too"):
        merge_start(architectures.plain("llama-tied"), read_start(tmp_path), None)


def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    saved_adapter(architectures.plain("llama"), tmp_path)
    weights = tmp_path / "adapter_model.safetensors"
    tensors = load_file(weights)
    some = next(name for name in tensors if "lora_B" in name)
    save_file({n: t for n, t in tensors.items() if n != some}, weights)
    with pytest.raises(SpecError, match=r"is not whole: .* has one matrix of two"):
        read_start(tmp_path)
    save_file(
        {**tensors, "base_model.model.model.embed_tokens.lora_embedding_A": torch.ones(2)}, weights
    )
    with pytest.raises(SpecError, match=r"holds .*lora_embedding_A, which is no LoRA matrix"):
        read_start(tmp_path)
    save_file({}, weights)
    with pytest.raises(SpecError, match="there are no matrices in it"):
        read_start(tmp_path)
    weights.write_bytes(b"no")
    with pytest.raises(SpecError, match=r"model\.adapter: .* can't be read"):
        read_start(tmp_path)
