from __future__ import annotations

from kltune.spec.model import ModelSpec


def test_alpha_defaults_to_twice_the_rank() -> None:
    assert ModelSpec(base="x").lora_alpha == 16
    assert ModelSpec(base="x", rank=4).lora_alpha == 8
    assert ModelSpec(base="x", rank=4, alpha=1).lora_alpha == 1
