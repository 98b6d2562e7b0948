from __future__ import annotations

from pathlib import Path

import oracle
import pytest
import tiny
import torch

from kltune.errors import RunError
from kltune.trainer.weights import load_weights


def test_a_saved_adapter_comes_back_bit_for_bit_in_any_row(tmp_path: Path) -> None:
    bank = tiny.bank(2)
    bank.admit(1, 4, tiny.trial(), None)
    bank.train_step()
    oracle.push(bank, 1)
    bank.save_adapter(1, tmp_path / "best")
    other = tiny.bank(1)
    assert load_weights(tmp_path / "best", 0, other.parts.stack) == 1
    assert torch.equal(other.parts.stack.flat_KP[0], bank.parts.stack.flat_KP[1])


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    from kltune.trainer.lora import attach

    bank = tiny.bank(1)
    bank.admit(0, 0, tiny.trial(), None)
    bank.save_adapter(0, tmp_path / "best")
    stack = attach(tiny.loaded().body, 1, rank=2, alpha=4)
    with pytest.raises(RunError, match="does not fit"):
        load_weights(tmp_path / "best", 0, stack)


def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    bank = tiny.bank(1)
    with pytest.raises(RunError, match="can't be read"):
        load_weights(tmp_path, 0, bank.parts.stack)
    bank.admit(0, 0, tiny.trial(), None)
    bank.save_adapter(0, tmp_path / "best")
    (tmp_path / "best" / "adapter.safetensors").write_bytes(b"x")
    with pytest.raises(RunError, match="can't be read"):
        load_weights(tmp_path / "best", 0, bank.parts.stack)
