"""A model spec in, a frozen base on its device out: body, head, tokenizer, stop ids.

The only place that loads weights: safetensors or GGUF, no code from a hub unless the
spec asks. accelerate places the model and sets the arithmetic.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from accelerate import Accelerator
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as transformers_logging

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.spec.model import ModelSpec
from kltune.trainer.fused.model import FusedModel, fuse
from kltune.trainer.head import Head
from kltune.trainer.weight_files import refuse_missing, refuse_not_finite, without_place

if TYPE_CHECKING:
    from kltune.trainer.sources import ModelSource

HEAD_TOLERANCE = 1e-3
"""Largest difference (logits) between our head on hidden states and the model's own forward."""


@dataclass(frozen=True)
class LoadedModel:
    """A frozen causal language model, ready to carry adapters."""

    model: PreTrainedModel
    body: nn.Module
    """Token ids to last hidden states."""
    head: nn.Linear
    """Hidden states to logits."""
    tokenizer: Any
    accelerator: Accelerator
    pad_id: int
    stop_ids: tuple[int, ...]
    """Every id that ends a completion: the tokenizer's and the generation config's."""
    cache_argument: str
    """What this version of transformers calls the key-value cache."""
    key_mask_suffices: bool
    """No sliding window: at one query per row the mask is the key padding alone."""
    fused: FusedModel | None = None
    """Our own forward, where the model is of a known family; None: the model's own is used."""
    unread_weights: tuple[str, ...] = ()
    """Weights of its files that its config has no place for."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.accelerator.device

    @property
    def vocabulary(self) -> int:
        """Logits per position, unused padded ids included."""
        return self.head.out_features

    def device_facts(self) -> dict[str, str]:
        """The device as the environment record shows it."""
        facts = {"device": self.device.type, "threads": str(torch.get_num_threads())}
        if self.device.type == "cuda":
            facts["device_name"] = torch.cuda.get_device_name(self.device)
        return facts

    def hidden(
        self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any | None = None
    ) -> Tensor:
        """``[rows, T]`` ids to ``[rows, T, D]`` last hidden states; ``cache`` is filled in place."""
        extra = {} if cache is None else {self.cache_argument: cache}
        with self.accelerator.autocast():
            output = self.body(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                use_cache=cache is not None,
                **extra,
            )
        return output.last_hidden_state

    @property
    def matmul_dtype(self) -> torch.dtype | None:
        """What autocast would multiply the head in; none: the hidden states' own type."""
        return torch.bfloat16 if self.accelerator.mixed_precision == "bf16" else None

    def head_weights(self) -> Head:
        """The head as it is now: the base's, or the ones that the stack in use has put in its place."""
        return Head(self.head.weight, self.head.bias)

    def logits(self, hidden: Tensor, temperature: float) -> Tensor:
        """``[..., D]`` hidden states to ``[..., V]`` float32 logits at a temperature."""
        with self.accelerator.autocast():
            logits = self.head(hidden)
        return logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature


def load_model(spec: ModelSpec, source: ModelSource, device: str, precision: str) -> LoadedModel:
    """Load and freeze the base of ``spec``.

    Raises:
        SpecError: the files are there but are no causal language model that this trainer can run, lack weights
            that the config asks for, or hold some that are not finite.
        EnvironmentMissingError: no such device, or a hub that can't be reached.
    """
    accelerator = place(device, precision)
    transformers_logging.disable_progress_bar()
    dtype = torch.float32 if spec.dtype == "float32" else torch.bfloat16
    gguf = {} if source.gguf_file is None else {"gguf_file": source.gguf_file}
    common = {"trust_remote_code": spec.trust_remote_code, **gguf}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.pretrained, **common)
        model, found = cast(
            "tuple[PreTrainedModel, dict[str, Any]]",
            AutoModelForCausalLM.from_pretrained(
                source.pretrained, dtype=dtype, output_loading_info=True, **common
            ),
        )
    except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        if source.kind == "hub":
            raise EnvironmentMissingError(
                f"model.base: {spec.base!r} could not be loaded from the hub: {first}"
            ) from error
        raise SpecError(f"model.base: {spec.base!r} could not be loaded: {first}") from error
    refuse_missing(spec.base, model, found)
    loaded = freeze(model, tokenizer, accelerator)
    return with_own_forward(replace(loaded, unread_weights=without_place(found)))


def with_own_forward(loaded: LoadedModel) -> LoadedModel:
    """The same model with our own forward beside the model's, where that is possible."""
    dtype = loaded.matmul_dtype or loaded.head.weight.dtype
    return replace(loaded, fused=fuse(loaded.model, loaded.body, dtype, loaded.head))


def place(device: str, precision: str) -> Accelerator:
    """An accelerator for ``auto``, ``cpu``, ``cuda`` or ``cuda:N`` with fp32 or bf16 arithmetic.

    Raises:
        EnvironmentMissingError: a CUDA device that is not there.
        SpecError: a device name that is none of these.
    """
    kind, _, index = device.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (index and not index.isdigit()):
        raise SpecError(
            f"trainer.device: must be auto, cpu, cuda or cuda:N with N a number (got {device!r})"
        )
    if kind == "cuda":
        count = torch.cuda.device_count()
        if int(index or 0) >= count:
            raise EnvironmentMissingError(
                f"trainer.device: {device!r} is not there (CUDA devices on this machine: {count})"
            )
        torch.cuda.set_device(int(index or 0))
    return Accelerator(cpu=kind == "cpu", mixed_precision="bf16" if precision == "bf16" else "no")


def freeze(model: PreTrainedModel, tokenizer: Any, accelerator: Accelerator) -> LoadedModel:
    """Freeze ``model``, move it to the accelerator's device, and find its parts.

    Dropout stays off in every pass (eval mode); the saved config is not touched.

    Raises:
        SpecError: weights that are not finite, a model whose logits are not its head on its last hidden state, that has no stop token,
            that carries an adapter, or whose tokenizer pads with an id it has not.
    """
    model.requires_grad_(False)
    model.eval()
    model.to(accelerator.device)  # pyright: ignore[reportArgumentType]
    refuse_not_finite(model)
    body, head = model.base_model, model.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise SpecError(
            f"model.base: {type(model).__name__} has no linear head from hidden states to logits"
        )
    if getattr(model, "_hf_peft_config_loaded", False):
        # The reference would be the base without it, and step 0 not at KL 0.
        raise SpecError(
            "model.base: it was loaded with an adapter, which can't be the start yet; merge it first"
        )
    stop_ids = _stop_ids(model, tokenizer)
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else stop_ids[0]
    if pad_id >= head.out_features:
        raise SpecError(
            f"model.base: the tokenizer pads with id {pad_id}, which the model's vocabulary of "
            f"{head.out_features} has not; nothing is resized, so give a tokenizer that fits the model"
        )
    loaded = LoadedModel(
        model=model,
        body=body,
        head=head,
        tokenizer=tokenizer,
        accelerator=accelerator,
        pad_id=int(pad_id),
        stop_ids=stop_ids,
        cache_argument="cache"
        if "cache" in inspect.signature(body.forward).parameters
        else "past_key_values",
        key_mask_suffices=_has_full_attention_only(model.config),
    )
    _check_head(loaded)
    return loaded


def _stop_ids(model: PreTrainedModel, tokenizer: Any) -> tuple[int, ...]:
    ids: set[int] = set()
    generation = getattr(model, "generation_config", None)
    for owner in (tokenizer, model.config, generation):
        value = None if owner is None else getattr(owner, "eos_token_id", None)
        if value is not None:
            ids.update(int(i) for i in (value if isinstance(value, list | tuple) else [value]))
    if not ids:
        raise SpecError(
            "model.base: neither tokenizer nor config names a stop token (eos_token_id), "
            "so no completion could ever end"
        )
    return tuple(sorted(ids))


def _has_full_attention_only(config: Any) -> bool:
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return all(kind == "full_attention" for kind in kinds)
    return getattr(config, "sliding_window", None) is None


@torch.no_grad()
def _check_head(loaded: LoadedModel) -> None:
    """Soft-capped or rescaled logits would make every log-prob wrong: compare once with the model's own."""
    ids = torch.tensor([[loaded.stop_ids[0], loaded.pad_id, 0, 1]], device=loaded.device)
    mask, positions = torch.ones_like(ids), torch.arange(4, device=loaded.device)[None]
    own = loaded.logits(loaded.hidden(ids, mask, positions), 1.0)
    with loaded.accelerator.autocast():
        theirs = loaded.model(input_ids=ids, attention_mask=mask, position_ids=positions).logits
    difference = float((own - theirs.float()).abs().max())
    scale = max(1.0, float(theirs.float().abs().max()))
    if not difference <= HEAD_TOLERANCE * scale:
        raise SpecError(
            f"model.base: {type(loaded.model).__name__} changes its logits after the head "
            f"(largest difference {difference:.3g}); this trainer would compute wrong log-probs"
        )
