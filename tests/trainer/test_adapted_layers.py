"""Which linear layers get adapters, of every architecture and by choice."""

from __future__ import annotations

import architectures
import pytest
import tiny
import torch
from torch import nn

from kltune.errors import SpecError
from kltune.spec.model import AdaptersSpec, ModelSpec
from kltune.trainer.adapted_layers import find_targets, is_transposed, size_of
from kltune.trainer.bank import Bank
from kltune.trainer.lora import attach
from kltune.trainer.model import with_own_forward
from kltune.trainer.runnable import body_of

ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
MLP = {"gate_proj", "up_proj", "down_proj"}


def ends(name: str, chosen: AdaptersSpec | None = None) -> set[str]:
    found = find_targets(body_of(architectures.plain(name)), chosen)
    return {full.rpartition(".")[2] for full, _ in found}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("llama", ATTENTION | MLP),
        ("gemma3", ATTENTION | MLP),
        ("phi3-fused", {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}),
        ("gpt2-conv1d", {"c_attn", "c_proj", "c_fc"}),
        ("gpt-neox", {"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"}),
        ("opt-projected", {"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"}),
        ("falcon", {"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"}),
        ("mpt-alibi", {"Wqkv", "out_proj", "up_proj", "down_proj"}),
        ("mixtral", ATTENTION),
        ("olmoe", ATTENTION),
        ("qwen2-moe", ATTENTION | MLP),  # the MLP of the shared expert, not its gate
    ],
)  # fmt: skip
def test_attention_and_mlp_by_default_and_neither_projections_of_embeddings_nor_routers(
    name: str, wanted: set[str]
) -> None:
    assert ends(name) == wanted


def test_layers_are_chosen_by_the_ends_of_their_names() -> None:
    assert ends("llama", AdaptersSpec(include=("q_proj", "mlp.up_proj"))) == {"q_proj", "up_proj"}
    assert ends("llama", AdaptersSpec(exclude=("q_proj",))) == (ATTENTION | MLP) - {"q_proj"}
    body = body_of(architectures.plain("llama"))
    one = find_targets(body, AdaptersSpec(include=("layers.1.mlp.up_proj",)))
    assert [name for name, _ in one] == ["layers.1.mlp.up_proj"]
    assert "project_in" in ends("opt-projected", AdaptersSpec(include=("project_in", "fc1")))
    assert "shared_expert_gate" in ends("qwen2-moe", AdaptersSpec(include=("shared_expert_gate",)))


@pytest.mark.parametrize("field", ["include", "exclude"])
def test_an_unknown_name_is_refused_with_those_there_are(field: str) -> None:
    chosen = AdaptersSpec.model_validate({field: ["q_proj", "wq", "proj"]})
    with pytest.raises(
        SpecError,
        match=rf"model\.adapters\.{field}: no linear layer is called wq, proj; there are: "
        "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj$",
    ):
        ends("llama", chosen)


def test_nothing_left_is_refused() -> None:
    with pytest.raises(SpecError, match="no layer is left to train"):
        ends("llama", AdaptersSpec(include=("q_proj",), exclude=("self_attn.q_proj",)))
    with pytest.raises(SpecError, match="Sequential has no linear layer"):
        find_targets(nn.Sequential(nn.Embedding(3, 4)))


def test_a_body_without_numbered_blocks_has_all_its_linear_layers() -> None:
    assert [n for n, _ in find_targets(nn.Sequential(nn.Linear(2, 3)))] == ["0"]


def test_the_size_of_a_layer_is_its_inputs_and_outputs_whatever_way_they_are_stored() -> None:
    layer = body_of(architectures.plain("gpt2-conv1d")).get_submodule("h.0.attn.c_attn")
    assert (size_of(layer), is_transposed(layer)) == ((32, 96), True)
    assert (size_of(nn.Linear(3, 5)), is_transposed(nn.Linear(3, 5))) == ((3, 5), False)
    assert size_of(nn.Embedding(3, 5)) is None


@pytest.mark.parametrize("own_forward", [True, False])
def test_a_choice_of_layers_learns_the_same_by_our_own_forward(own_forward: bool) -> None:
    """q_proj is joined with layers that have no adapter, and comes after none that has one."""
    spec = ModelSpec(base="x", rank=4, adapters=AdaptersSpec(include=("v_proj", "down_proj")))
    grads: list[torch.Tensor] = []
    for own in (own_forward, False):
        model = tiny.loaded(own_forward=own)
        bank = Bank(model, tiny.task_data(model), tiny.settings(prompts=8), spec, 1)
        bank.admit(0, 0, tiny.trial(), None)
        moved = bank.parts.stack.flat_KP.clone()
        for _ in range(2):
            bank.train_step()
        assert len(bank.parts.stack.targets) == 4
        assert not torch.equal(bank.parts.stack.flat_KP, moved)
        grads.append(bank.parts.stack.grad_KP[0].clone())
    assert float((grads[0] - grads[1]).norm() / grads[1].norm()) < 1e-3


def test_a_choice_of_layers_learns_beside_a_bfloat16_base() -> None:
    """The branch beside the base: a joined layer whose first part has no adapter keeps its gradient."""
    model = tiny.loaded()
    model.model.bfloat16()
    own = with_own_forward(model)
    stack = attach(own.body, 1, 4, 8, AdaptersSpec(include=("v_proj",)))
    stack.reset(0, 0)
    view = stack.view([0])
    ids = torch.tensor([[[5, 9, 23]]])
    from kltune.trainer.encode import pad_left
    from kltune.trainer.logprobs import Completions, hidden_states

    rows = Completions(pad_left([[4, 8]], 0, own.device), ids, torch.ones_like(ids).bool())
    assert own.fused is not None
    view.add_gradients(hidden_states(own, stack, view, rows).states_KNTD.float().sum())
    assert stack.grad_KP.any()
