"""float32 and bfloat16 by what is asked and what a device can."""

from __future__ import annotations

import pytest
import torch

from kltune.errors import SpecError
from kltune.spec.model import ModelSpec
from kltune.trainer import base_dtype as module
from kltune.trainer.base_dtype import base_dtype

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")


def asked(dtype: str, finetune: str = "lora") -> ModelSpec:
    return ModelSpec.model_validate({"base": "x", "dtype": dtype, "finetune": finetune})


def test_on_a_cpu_auto_is_float32_and_bfloat16_is_what_was_asked_for() -> None:
    assert base_dtype(ModelSpec(base="x"), CPU) == torch.float32
    assert base_dtype(asked("auto"), CPU) == torch.float32
    assert base_dtype(asked("bfloat16"), CPU) == torch.bfloat16


@pytest.mark.parametrize("is_native", [True, False])
def test_auto_takes_bfloat16_where_a_device_computes_in_it(
    monkeypatch: pytest.MonkeyPatch, is_native: bool
) -> None:
    monkeypatch.setattr(module, "computes_bfloat16", lambda _device: is_native)
    wanted = torch.bfloat16 if is_native else torch.float32
    assert base_dtype(asked("auto"), CUDA) == wanted
    assert base_dtype(asked("float32"), CUDA) == torch.float32
    assert base_dtype(asked("auto", "full"), CUDA) == torch.float32


def test_bfloat16_on_a_device_that_emulates_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "computes_bfloat16", lambda _device: False)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda _device: "Old GPU")
    with pytest.raises(SpecError, match=r"model\.dtype: Old GPU has no bfloat16 arithmetic"):
        base_dtype(asked("bfloat16"), CUDA)
    monkeypatch.setattr(module, "computes_bfloat16", lambda _device: True)
    assert base_dtype(asked("bfloat16"), CUDA) == torch.bfloat16


@pytest.mark.parametrize(("major", "wanted"), [(7, False), (8, True), (9, True)])
def test_native_means_compute_capability_8(
    monkeypatch: pytest.MonkeyPatch, major: int, wanted: bool
) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _device: (major, 0))
    assert module.computes_bfloat16(CUDA) == wanted
