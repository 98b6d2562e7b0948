from __future__ import annotations

import pytest
from pydantic import ValidationError

from kltune.spec.model import ModelSpec


def test_alpha_defaults_to_twice_the_rank() -> None:
    assert ModelSpec(base="x").lora_alpha == 16
    assert ModelSpec(base="x", rank=4).lora_alpha == 8
    assert ModelSpec(base="x", rank=4, alpha=1).lora_alpha == 1


def test_layers_are_chosen_for_adapters_alone() -> None:
    chosen = {"include": ["q_proj"], "exclude": []}
    spec = ModelSpec.model_validate({"base": "x", "adapters": chosen})
    assert spec.adapters.include == ("q_proj",)
    assert ModelSpec.model_validate(spec.model_dump(mode="json")) == spec
    with pytest.raises(ValidationError, match="says which layers get LoRA adapters"):
        ModelSpec.model_validate({"base": "x", "finetune": "full", "adapters": chosen})
