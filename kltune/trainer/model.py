"""A model spec in, a frozen base on its device out: body, head, tokenizer, stop ids.

The only place that loads weights: safetensors or GGUF, no code from a hub unless the
spec asks. accelerate places the model and sets the arithmetic.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as transformers_logging

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.spec.model import ModelSpec
from kltune.trainer.base_dtype import base_dtype
from kltune.trainer.fused.model import FusedModel, fuse
from kltune.trainer.head import Head
from kltune.trainer.hub import first_words, in_reach, refuse_pickled, trouble_words
from kltune.trainer.logit_rule import PLAIN, LogitRule, own_rule
from kltune.trainer.runnable import (
    body_of,
    has_full_attention_only,
    refuse_foreign_ids,
    refuse_stateful,
    refuse_unfaithful,
)
from kltune.trainer.start_adapter import merge_start, read_start
from kltune.trainer.weight_files import refuse_missing, refuse_not_finite, without_place
from kltune.trainer.weight_memory import refuse_too_large

if TYPE_CHECKING:
    from kltune.trainer.sources import ModelSource
from kltune.trainer.text_rules import NO_RULES, TextRules

HEAD_TOLERANCE = 1e-3
"""Largest difference between our head on hidden states and the model's own forward, relative to its largest logit."""
ROUNDED_TOLERANCE = 2e-2
"""The same where the model scales or caps its logits in bfloat16, which we do in float32."""


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
    """No sliding window, no ALiBi: at one query per row the mask is the key padding alone."""
    num_ids: int
    """Logits that stand for a token: those beyond are padding of the vocabulary, never drawn and never counted."""
    logit_rule: LogitRule = PLAIN
    """What the model does to its logits after the head."""
    fused: FusedModel | None = None
    """Our own forward, where the model is of a known family; None: the model's own is used."""
    takes_positions: bool = True
    """Whether the forward wants positions; ALiBi's finds distances in the mask."""
    text_rules: TextRules = NO_RULES
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
        if self.takes_positions:
            extra["position_ids"] = positions
        with self.accelerator.autocast():
            output = self.body(
                input_ids=ids,
                attention_mask=mask,
                use_cache=cache is not None,
                **extra,
            )
        return output.last_hidden_state

    def decode_mask(self, mask: Tensor) -> Tensor:
        """What the forward of one token per row takes for ``mask`` over all that was read, ``[rows, T]``.

        A ready 4-D mask spares transformers from building one per position; a sliding window and ALiBi need their own.
        """
        return mask[:, None, None].bool() if self.key_mask_suffices else mask

    @property
    def matmul_dtype(self) -> torch.dtype | None:
        """What autocast would multiply the head in; none: the hidden states' own type."""
        return torch.bfloat16 if self.accelerator.mixed_precision == "bf16" else None

    def head_weights(self) -> Head:
        """The head as it is now: the base's, or the ones that the stack in use has put in its place."""
        weight, count = self.head.weight, self.num_ids
        bias = cast("Tensor | None", self.head.bias)  # torch declares no None
        if count == self.vocabulary:
            return Head(weight, bias, self.logit_rule)
        return Head(weight[:count], None if bias is None else bias[:count], self.logit_rule)

    def logits(self, hidden: Tensor, temperature: float) -> Tensor:
        """``[..., D]`` hidden states to ``[..., V]`` float32 logits at a temperature, V = :attr:`num_ids`."""
        with self.accelerator.autocast():
            logits = self.head(hidden)[..., : self.num_ids]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return self.logit_rule.apply(logits) / temperature


def load_model(spec: ModelSpec, source: ModelSource, device: str, precision: str) -> LoadedModel:
    """Load and freeze the base of ``spec``.

    Raises:
        SpecError: the files are there but no causal language model that this trainer can run, lack weights, or hold
            some that are not finite; the start adapter is another model's; the weights do not fit the free memory.
        EnvironmentMissingError: no such device, or a hub that can't be reached.
    """
    accelerator, source = place(device, precision), in_reach(source)
    transformers_logging.disable_progress_bar()
    dtype = base_dtype(spec, accelerator.device)
    gguf = {} if source.gguf_file is None else {"gguf_file": source.gguf_file}
    common = {"trust_remote_code": spec.trust_remote_code, **gguf, **source.flags}
    safe = {} if gguf else {"use_safetensors": True}  # never a pickle, on the hub neither
    refuse_too_large(spec, source, accelerator.device)
    try:
        refuse_pickled(source.pretrained, "model.base", **gguf, **source.flags)
        tokenizer = AutoTokenizer.from_pretrained(source.pretrained, **common)
        model, found = cast(
            "tuple[PreTrainedModel, dict[str, Any]]",
            AutoModelForCausalLM.from_pretrained(
                source.pretrained, dtype=dtype, output_loading_info=True, **safe, **common
            ),
        )
    except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as error:
        first = first_words(error)
        if source.kind == "hub":
            why = f"could not be loaded from the hub: {trouble_words(source, first)}"
            raise EnvironmentMissingError(f"model.base: {spec.base!r} {why}") from error
        raise SpecError(f"model.base: {spec.base!r} could not be loaded: {first}") from error
    refuse_missing(spec.base, model, found)
    if source.adapter is not None:
        start = read_start(Path(source.adapter))
        merge_start(model, start, spec.base if source.kind == "hub" else None)
    loaded = freeze(model, tokenizer, accelerator)
    return with_own_forward(replace(loaded, unread_weights=without_place(found)))


def with_own_forward(loaded: LoadedModel) -> LoadedModel:
    """The same model with our own forward beside the model's, where that is possible."""
    head, dtype = loaded.head_weights(), loaded.matmul_dtype or loaded.head.weight.dtype
    is_plain = head.rule.is_plain  # our own forward's head is a matrix product alone
    return replace(loaded, fused=fuse(loaded.model, loaded.body, dtype, head) if is_plain else None)


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
    # One process may train twice: accelerate would refuse another precision than that of the first time.
    AcceleratorState._reset_state()  # pyright: ignore[reportPrivateUsage]
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
    body, head = body_of(model), model.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise SpecError(
            f"model.base: {type(model).__name__} has no linear head from hidden states to logits"
        )
    if getattr(model, "_hf_peft_config_loaded", False):
        # The reference would be the base without it, and step 0 not at KL 0.
        raise SpecError(
            "model.base: it was loaded with an adapter; give the base there, and the adapter's folder as model.adapter"
        )
    refuse_stateful(model)
    stop_ids = _stop_ids(model, tokenizer)
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else stop_ids[0]
    refuse_foreign_ids(model, tokenizer, stop_ids, pad_id)
    parameters = inspect.signature(body.forward).parameters
    loaded = LoadedModel(
        model=model,
        body=body,
        head=head,
        tokenizer=tokenizer,
        accelerator=accelerator,
        pad_id=int(pad_id),
        stop_ids=stop_ids,
        cache_argument="cache" if "cache" in parameters else "past_key_values",
        key_mask_suffices="position_ids" in parameters and has_full_attention_only(model.config),
        takes_positions="position_ids" in parameters,
        num_ids=_num_ids(tokenizer, stop_ids, head.out_features),
    )
    loaded = _with_own_rule(loaded)
    refuse_unfaithful(loaded)
    return loaded


def _num_ids(tokenizer: Any, stop_ids: tuple[int, ...], vocabulary: int) -> int:
    """Up to the last id that the tokenizer knows or that ends a completion."""
    known = max(tokenizer.get_vocab().values(), default=-1)
    return min(vocabulary, max(known, *stop_ids) + 1)


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


@torch.no_grad()
def _with_own_rule(loaded: LoadedModel) -> LoadedModel:
    """Logits that are soft-capped or rescaled after the head make every log-prob another: measured once.

    Raises:
        SpecError: what the model does to its logits is none of the known rules.
    """
    ids = torch.tensor([[loaded.stop_ids[0], loaded.pad_id, 0, 1]], device=loaded.device)
    mask, positions = torch.ones_like(ids), torch.arange(4, device=loaded.device)[None]
    hidden = loaded.hidden(ids, mask, positions)
    given = {"position_ids": positions} if loaded.takes_positions else {}
    with loaded.accelerator.autocast():
        ours = loaded.head(hidden)
        theirs = loaded.model(input_ids=ids, attention_mask=mask, **given).logits
    rule, difference = own_rule(loaded.model.config, ours, theirs)
    scale = max(1.0, float(theirs.float().abs().max()))
    is_rounded = theirs.dtype == torch.bfloat16 and not rule.is_plain
    if not difference <= (ROUNDED_TOLERANCE if is_rounded else HEAD_TOLERANCE) * scale:
        raise SpecError(
            f"model.base: {type(loaded.model).__name__} changes its logits after the head "
            f"(largest difference {difference:.3g}) by no rule that is known here; this trainer would compute "
            "wrong log-probs"
        )
    return replace(loaded, logit_rule=rule)
