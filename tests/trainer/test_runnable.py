"""Which models are refused because our loops would get their numbers wrong."""

from __future__ import annotations

from dataclasses import replace

import architectures
import pytest
import tiny
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from kltune.errors import SpecError
from kltune.trainer.model import LoadedModel, freeze
from kltune.trainer.runnable import body_of, has_full_attention_only, refuse_unfaithful


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(architectures.STATEFUL))
def test_a_model_that_keeps_more_than_keys_and_values_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="has recurrent or linear-attention layers") as caught:
        freeze(architectures.plain(name), tiny.tokenizer(), Accelerator(cpu=True))
    assert "\n" not in str(caught.value)


def test_the_body_is_the_model_without_its_head() -> None:
    model = tiny.llama()
    assert body_of(model) is model.model
    model.base_model_prefix = "no_such_part"
    assert body_of(model) is model.model
    del model.model
    with pytest.raises(SpecError, match="has no decoder apart from its head"):
        body_of(model)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("llama", True), ("qwen2", True), ("gpt2-conv1d", True), ("mistral-window", False),
     ("gemma3", False), ("falcon", True), ("falcon-alibi", False), ("gpt-neo-local", False)],
)  # fmt: skip
def test_the_key_padding_is_the_whole_mask_only_where_every_key_counts_alike(
    name: str, wanted: bool
) -> None:
    assert has_full_attention_only(architectures.plain(name).config) == wanted


class Deaf(nn.Module):
    """A body that is handed another mask, or reads tokens as if they stood alone."""

    def __init__(self, body: nn.Module, *, reads_padding: bool) -> None:
        super().__init__()
        self.body, self.reads_padding = body, reads_padding

    def forward(self, attention_mask: Tensor, **given: object) -> object:
        if self.reads_padding and attention_mask.dim() == 2:
            attention_mask = torch.ones_like(attention_mask)
        if not self.reads_padding and given["input_ids"].shape[1] == 1:  # pyright: ignore[reportAttributeAccessIssue]
            given = {"input_ids": given["input_ids"], "position_ids": given["position_ids"]}
            attention_mask = torch.ones_like(given["input_ids"])  # pyright: ignore[reportArgumentType]
        return self.body(attention_mask=attention_mask, **given)


@pytest.mark.parametrize(
    ("reads_padding", "fault"),
    [(True, "other numbers when padding stands before it"), (False, "reads a text token by token")],
)
def test_a_model_whose_numbers_depend_on_how_it_is_read_is_refused(
    reads_padding: bool, fault: str
) -> None:
    sound = tiny.loaded()
    refuse_unfaithful(sound)
    broken: LoadedModel = replace(sound, body=Deaf(sound.body, reads_padding=reads_padding))
    with pytest.raises(SpecError, match=fault):
        refuse_unfaithful(broken)
