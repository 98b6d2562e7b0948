"""Loading and placing a base: what is refused, and what accelerate is there for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from safetensors.torch import load_file, save_file
from transformers import Gemma2Config, Gemma2ForCausalLM
from transformers.modeling_outputs import CausalLMOutputWithPast

from kltune.errors import EnvironmentMissingError, ExitCode, SpecError
from kltune.spec.model import ModelSpec
from kltune.trainer.logit_rule import LogitRule
from kltune.trainer.model import LoadedModel, freeze, load_model, place
from kltune.trainer.sources import ModelSource


@pytest.fixture(autouse=True)
def _own_accelerate_state() -> Iterator[None]:
    """accelerate keeps one device and precision per process; each of these tests wants its own."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny.llama().save_pretrained(tmp_path / "tiny")
    tiny.tokenizer().save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def source(folder: Path, kind: str = "folder") -> ModelSource:
    return ModelSource(str(folder), None, kind)  # pyright: ignore[reportArgumentType]


def hidden_of(model: LoadedModel) -> torch.Tensor:
    ids = torch.tensor([[2, 3, 4]])
    return model.hidden(ids, torch.ones_like(ids), torch.arange(3)[None])


def test_a_folder_is_loaded_frozen_and_in_eval_mode(folder: Path) -> None:
    model = load_model(ModelSpec(base="x"), source(folder), "cpu", "fp32")
    assert model.device.type == "cpu"
    assert not model.model.training
    assert not any(p.requires_grad for p in model.model.parameters())
    expected = tiny.llama().state_dict()
    assert all(torch.equal(t, expected[name]) for name, t in model.model.state_dict().items())
    assert model.stop_ids == (1,)
    assert model.pad_id == 0


def test_accelerate_places_the_model_and_bf16_comes_from_its_autocast(folder: Path) -> None:
    # Without place()'s Accelerator the hidden states below would be float32.
    model = load_model(ModelSpec(base="x"), source(folder), "auto", "bf16")
    assert isinstance(model.accelerator, Accelerator)
    assert model.accelerator.mixed_precision == "bf16"
    projected: list[torch.dtype] = []
    layer = model.body.get_submodule("layers.0.self_attn.q_proj")
    hook = layer.register_forward_hook(
        lambda _module, _inputs, output: projected.append(output.dtype)
    )
    hidden = hidden_of(model)
    hook.remove()
    assert projected == [torch.bfloat16]
    assert model.logits(hidden, 1.0).dtype == torch.float32
    assert next(model.model.parameters()).dtype == torch.float32


def test_fp32_computes_in_float32(folder: Path) -> None:
    model = load_model(ModelSpec(base="x"), source(folder), "cpu", "fp32")
    assert model.accelerator.mixed_precision == "no"
    assert hidden_of(model).dtype == torch.float32


def test_a_bfloat16_base_has_bfloat16_weights_and_float32_logits(folder: Path) -> None:
    model = load_model(ModelSpec(base="x", dtype="bfloat16"), source(folder), "cpu", "fp32")
    assert {p.dtype for p in model.model.parameters()} == {torch.bfloat16}
    assert model.logits(hidden_of(model), 1.0).dtype == torch.float32


def test_cpu_forces_the_cpu() -> None:
    assert place("cpu", "fp32").device.type == "cpu"
    assert AcceleratorState().device.type == "cpu"
    assert AcceleratorState()._cpu, (
        "only Accelerator(cpu=True) keeps a machine with a GPU on its CPU"
    )


def test_auto_is_what_accelerate_finds() -> None:
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert place("auto", "fp32").device.type == expected


@pytest.mark.parametrize("device", ["cuda:99", "cuda:1234"])
def test_a_device_that_is_not_there_is_the_environments_fault(device: str) -> None:
    with pytest.raises(EnvironmentMissingError, match="is not there") as caught:
        place(device, "fp32")
    assert caught.value.exit_code == ExitCode.ENVIRONMENT == 5


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_cuda_without_cuda_is_the_environments_fault() -> None:
    with pytest.raises(EnvironmentMissingError, match="CUDA devices on this machine: 0"):
        place("cuda", "fp32")


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cuda:-1", "mps", ""])
def test_a_device_name_that_means_nothing_is_the_specs_fault(device: str) -> None:
    with pytest.raises(SpecError, match=r"trainer\.device"):
        place(device, "fp32")


def test_files_that_are_no_model_are_the_specs_fault(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(SpecError, match=r"model\.base: 'mine' could not be loaded"):
        load_model(ModelSpec(base="mine"), source(tmp_path), "cpu", "fp32")


def test_a_hub_that_does_not_answer_is_the_environments_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(EnvironmentMissingError, match="could not be loaded from the hub"):
        load_model(
            ModelSpec(base="no-such-owner/no-such-model"),
            source(Path("no-such-owner/no-such-model"), "hub"), "cpu", "fp32",
        )  # fmt: skip


def gemma(cap: float | None) -> Gemma2ForCausalLM:
    config = Gemma2Config(
        vocab_size=30, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=64, final_logit_softcapping=cap,
        pad_token_id=0, eos_token_id=1, bos_token_id=None, tie_word_embeddings=False,
    )  # fmt: skip
    model = Gemma2ForCausalLM(config).float()
    with torch.no_grad():  # logits of the size that a trained model has
        model.lm_head.weight.copy_(
            2 * torch.randn(30, 32, generator=torch.Generator().manual_seed(0))
        )
    return model


def test_soft_capped_logits_are_the_models_own() -> None:
    model = freeze(gemma(2.0), tiny.tokenizer(), Accelerator(cpu=True))
    assert model.logit_rule == LogitRule(cap=2.0)
    assert model.head_weights().rule == model.logit_rule
    ids = torch.tensor([[2, 3, 4]])
    with torch.no_grad():
        theirs = model.model(input_ids=ids).logits
        torch.testing.assert_close(model.logits(hidden_of(model), 1.0), theirs)
        torch.testing.assert_close(model.logits(hidden_of(model), 0.5), 2 * theirs)
    assert float(theirs.abs().max()) > 1, "the case must be near its cap"
    assert freeze(gemma(None), tiny.tokenizer(), Accelerator(cpu=True)).logit_rule.is_plain


def test_logits_that_are_changed_by_no_known_rule_are_refused() -> None:
    model = gemma(2.0)

    def more(_module: object, _inputs: object, output: CausalLMOutputWithPast) -> None:
        assert output.logits is not None
        output.logits = 1.5 * output.logits  # pyright: ignore[reportAttributeAccessIssue]

    model.register_forward_hook(more)
    with pytest.raises(SpecError, match="Gemma2ForCausalLM changes its logits after the head"):
        freeze(model, tiny.tokenizer(), Accelerator(cpu=True))


def test_ids_beyond_the_tokenizer_are_no_part_of_the_distribution() -> None:
    """A vocabulary that is padded for speed: never drawn, never counted in a KL."""
    model = freeze(tiny.llama(vocabulary=64), tiny.tokenizer(), Accelerator(cpu=True))
    assert (model.vocabulary, model.num_ids) == (64, 30)
    logits = model.logits(hidden_of(model), 1.0)
    assert logits.shape[-1] == model.head_weights().weight.shape[0] == 30
    stopping = tiny.llama(vocabulary=64)
    stopping.generation_config.eos_token_id = [1, 40]
    assert freeze(stopping, tiny.tokenizer(), Accelerator(cpu=True)).num_ids == 41


def test_weights_that_are_not_finite_are_refused_by_name() -> None:
    model = tiny.llama()
    with torch.no_grad():
        model.lm_head.weight[3] = torch.nan
    with pytest.raises(SpecError, match=r"not finite: lm_head\.weight holds 32 "):
        freeze(model, tiny.tokenizer(), Accelerator(cpu=True))


def test_a_model_without_a_stop_token_is_refused() -> None:
    model, tokenizer = tiny.llama(), tiny.tokenizer()
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    tokenizer.eos_token = None
    with pytest.raises(SpecError, match="neither tokenizer nor config names a stop token"):
        freeze(model, tokenizer, Accelerator(cpu=True))


def test_every_stop_id_of_tokenizer_config_and_generation_config_counts() -> None:
    model = tiny.llama()
    model.config.eos_token_id = 7
    model.generation_config.eos_token_id = [9, 1, 12]
    assert freeze(model, tiny.tokenizer(), Accelerator(cpu=True)).stop_ids == (1, 7, 9, 12)


def test_a_tokenizer_without_a_pad_token_works() -> None:
    tokenizer = tiny.tokenizer()
    tokenizer.pad_token = None
    model = freeze(tiny.llama(), tokenizer, Accelerator(cpu=True))
    assert model.pad_id == 1  # the stop token; masks go by position, so a real one is still seen
    assert tokenizer.pad_token is None, "the user's tokenizer is left as it was"


def test_the_embedding_is_left_at_its_size() -> None:
    # field case A58: an embedding of 128, a tokenizer of 120, twice
    base, tokenizer = tiny.llama(vocabulary=128), tiny.tokenizer(118)
    for _ in range(2):
        model = freeze(base, tokenizer, Accelerator(cpu=True))
        assert model.head.weight.shape[0] == model.body.embed_tokens.weight.shape[0] == 128
        assert (model.vocabulary, len(tokenizer)) == (128, 120)


def test_a_pad_token_outside_the_vocabulary_is_refused_and_nothing_grows() -> None:
    # field case A58: a pad token was added to the tokenizer and not to the model
    base, tokenizer = tiny.llama(), tiny.tokenizer()
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    with pytest.raises(SpecError, match="pads with id 30, which the model's vocabulary of 30 has"):
        freeze(base, tokenizer, Accelerator(cpu=True))
    assert base.get_input_embeddings().weight.shape[0] == 30


def test_a_stop_token_that_only_the_tokenizer_has_is_refused_with_both_counts() -> None:
    base, tokenizer = tiny.llama(), tiny.tokenizer()
    tokenizer.add_special_tokens({"eos_token": "[END]"})
    told = (
        r"needs id 30 \('\[END\]'\).*tokenizer has 31 ids, the model 30;.*resize_token_embeddings"
    )
    with pytest.raises(SpecError, match=told):
        freeze(base, tokenizer, Accelerator(cpu=True))


def test_a_model_that_was_loaded_with_an_adapter_is_refused() -> None:
    # field case A13: the reference would be the base without it
    model = tiny.llama()
    model._hf_peft_config_loaded = True  # as transformers marks it where peft is installed
    with pytest.raises(SpecError, match="loaded with an adapter"):
        freeze(model, tiny.tokenizer(), Accelerator(cpu=True))


def test_temperature_divides_the_logits() -> None:
    model = tiny.loaded()
    hidden = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model.logits(hidden, 0.5), 2 * model.logits(hidden, 1.0))


def changed_config(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def load(folder: Path) -> LoadedModel:
    return load_model(ModelSpec(base="mine"), source(folder), "cpu", "fp32")


def test_weights_that_the_config_asks_for_and_no_file_has_are_refused(folder: Path) -> None:
    changed_config(folder, num_hidden_layers=3)
    with pytest.raises(SpecError, match=r"model\.base: .*'mine' lack 9 of .*model\.layers\.2\."):
        load(folder)


def test_a_weight_that_is_tied_needs_no_file_of_its_own(folder: Path) -> None:
    changed_config(folder, tie_word_embeddings=True)
    weights = load_file(folder / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert load(folder).unread_weights == ()
    changed_config(folder, tie_word_embeddings=False)
    with pytest.raises(SpecError, match=r"lack 1 of .*\(lm_head\.weight\)"):
        load(folder)


def test_weights_of_another_shape_are_refused(folder: Path) -> None:
    changed_config(folder, intermediate_size=32)
    with pytest.raises(SpecError, match=r"model\.base: 'mine' could not be loaded"):
        load(folder)


def test_weights_without_a_place_in_the_config_are_kept_by_name(folder: Path) -> None:
    assert load(folder).unread_weights == ()
    changed_config(folder, num_hidden_layers=1)
    unread = load(folder).unread_weights
    assert len(unread) == 9
    assert all(name.startswith("model.layers.1.") for name in unread)


def test_sharded_weights_are_all_found(tmp_path: Path) -> None:
    tiny.llama().save_pretrained(tmp_path, max_shard_size="10KB")
    tiny.tokenizer().save_pretrained(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert load(tmp_path).unread_weights == ()


def test_one_process_may_train_in_both_precisions() -> None:
    assert place("cpu", "fp32").mixed_precision == "no"
    assert place("cpu", "bf16").mixed_precision == "bf16"
    assert place("cpu", "fp32").mixed_precision == "no"
