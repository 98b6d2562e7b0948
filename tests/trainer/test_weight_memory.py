"""Whether the weights fit, said before they are loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
import torch

from kltune.errors import SpecError
from kltune.spec.model import ModelSpec
from kltune.trainer import weight_memory
from kltune.trainer.sources import ModelSource
from kltune.trainer.weight_memory import free_bytes, num_weights, refuse_too_large

CPU = torch.device("cpu")


@pytest.fixture
def source(tmp_path: Path) -> ModelSource:
    tiny.llama().config.save_pretrained(tmp_path)
    return ModelSource(str(tmp_path), None, "folder")


WEIGHTS = sum(p.numel() for p in tiny.llama().parameters())


def check(monkeypatch: pytest.MonkeyPatch, source: ModelSource, free: int, **model: object) -> None:
    monkeypatch.setattr(weight_memory, "free_bytes", lambda _device: free)
    refuse_too_large(ModelSpec.model_validate({"base": "mine", **model}), source, CPU)


def test_weights_are_counted_from_the_configuration_alone(source: ModelSource) -> None:
    assert not list(Path(source.pretrained).glob("*.safetensors"))
    assert num_weights(ModelSpec(base="mine"), source) == (WEIGHTS, False)


def test_tied_weights_count_once(tmp_path: Path) -> None:
    config = tiny.llama().config
    config.tie_word_embeddings = True
    config.save_pretrained(tmp_path)
    tied = num_weights(ModelSpec(base="mine"), ModelSource(str(tmp_path), None, "folder"))
    assert tied == (WEIGHTS - 30 * 32, False)


def test_a_model_larger_than_memory_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, source: ModelSource
) -> None:
    check(monkeypatch, source, 4 * WEIGHTS)
    with pytest.raises(SpecError) as caught:
        check(monkeypatch, source, 4 * WEIGHTS - 1)
    assert str(caught.value) == (
        f"model.base: 'mine' holds {WEIGHTS:,} weights, which take 6.98e-05 GB in float32; 6.98e-05 GB of memory "
        "are free on cpu: give a smaller model, or model.dtype: bfloat16 (3.49e-05 GB)"
    )
    with pytest.raises(SpecError, match=r"give a smaller model$"):  # too large in bfloat16 as well
        check(monkeypatch, source, 2 * WEIGHTS - 1)
    check(monkeypatch, source, 2 * WEIGHTS, dtype="bfloat16")
    with pytest.raises(SpecError, match=r"in bfloat16; .*: give a smaller model$"):
        check(monkeypatch, source, 2 * WEIGHTS - 1, dtype="bfloat16")


def test_full_fine_tuning_takes_five_copies(
    monkeypatch: pytest.MonkeyPatch, source: ModelSource
) -> None:
    check(monkeypatch, source, 20 * WEIGHTS, finetune="full")
    with pytest.raises(SpecError, match=r"five times over .* or finetune: lora"):
        check(monkeypatch, source, 20 * WEIGHTS - 1, finetune="full")


def test_a_gguf_holds_at_least_half_as_many_weights_as_bytes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "m.gguf").write_bytes(b"x" * 1000)
    source = ModelSource(str(tmp_path), "m.gguf", "folder")
    check(monkeypatch, source, 2000)
    with pytest.raises(SpecError, match="holds at least 500 weights"):
        check(monkeypatch, source, 1999)


def test_what_can_not_be_counted_is_left_to_loading(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    check(monkeypatch, ModelSource(str(tmp_path), None, "folder"), 0)


def test_the_free_memory_of_this_machine_is_found() -> None:
    assert free_bytes(CPU) > 1_000_000
