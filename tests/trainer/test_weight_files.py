"""What transformers says of a load, judged."""

from __future__ import annotations

from typing import Any

import pytest
import tiny
import torch

from kltune.errors import SpecError
from kltune.trainer.weight_files import (
    listed,
    refuse_missing,
    refuse_not_finite,
    without_place,
)


def found(missing: set[str], mismatched: set[Any] | None = None) -> dict[str, Any]:
    return {"missing_keys": missing, "mismatched_keys": mismatched or set()}


def test_a_weight_that_no_file_had_is_refused() -> None:
    with pytest.raises(SpecError, match=r"'mine' lack 1 of the 21 weights .*\(lm_head\.weight\)"):
        refuse_missing("mine", tiny.llama(), found({"lm_head.weight"}))


def test_a_weight_of_another_shape_is_as_good_as_absent() -> None:
    shapes = ("lm_head.weight", (2, 2), (30, 32))
    with pytest.raises(SpecError, match=r"lm_head\.weight"):
        refuse_missing("mine", tiny.llama(), found(set(), {shapes}))


def test_tied_weights_and_buffers_are_not_missed() -> None:
    model = tiny.llama()
    model.lm_head.weight = model.model.embed_tokens.weight
    refuse_missing("mine", model, found({"lm_head.weight", "model.rotary_emb.inv_freq"}))
    both = {"lm_head.weight", "model.embed_tokens.weight"}
    with pytest.raises(SpecError, match="lack 2 of"):
        refuse_missing("mine", model, found(both))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_one_number_that_is_not_finite_is_found(value: float, dtype: torch.dtype) -> None:
    model = tiny.llama().to(dtype)  # pyright: ignore[reportArgumentType]
    refuse_not_finite(model)
    with torch.no_grad():
        model.get_parameter("model.layers.1.mlp.down_proj.weight")[3, 5] = value
    with pytest.raises(SpecError, match=r"model\.layers\.1\.mlp\.down_proj\.weight holds 1 NaN"):
        refuse_not_finite(model)


def test_names_left_over_come_in_order_and_some_are_shown() -> None:
    names = without_place({"unexpected_keys": {"d", "b", "a", "c"}})
    assert names == ("a", "b", "c", "d")
    assert listed(names) == "a, b, c, ..."
    assert listed(("a",)) == "a"
