"""A bank and some completions in, the memory that K trials need out: reckoned, and of one step as it was."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import torch
from torch import Tensor

from kltune.trainer.bank import Bank
from kltune.trainer.encode import PaddedPrompts
from kltune.trainer.logprobs import Completions, Hidden, compare, hidden_states
from kltune.trainer.rollout import Rollout
from kltune.trainer.soundness.drawn import Drawn, rows_of
from kltune.trainer.soundness.facts import MemoryFacts

NUM_ROWS = 4
"""Completions whose backward pass is measured."""

SAMPLER_COPIES = 4
"""Of the logits of one position while a token is drawn: logits, weights, sums in twice the width."""

STATE_COPIES = 3
"""Of the last hidden states while they are scored: policy, reference, gradient."""

FLOAT_BYTES: Final = 4
_STATUS: Final = Path("/proc/self/status")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Peak:
    """Memory while something ran, bytes; none where this platform does not tell."""

    beyond: int | None
    """The most that was held beyond what was held before."""
    total: int | None
    """The most that was held."""


def measured_peak(device: torch.device, run: Callable[[], _T]) -> tuple[_T, Peak]:
    """Run it, and say how much memory it took: allocations on a CUDA device, resident memory on a CPU."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
        result = run()
        most = torch.cuda.max_memory_allocated(device)
        return result, Peak(most - held, most)
    _give_back()
    before = _reset_high_water()
    result = run()
    most = None if before is None else _status("VmHWM")
    beyond = None if before is None or most is None else max(0, most - before)
    return result, Peak(beyond, most)


def memory_facts(bank: Bank, drawn: Drawn, slots: int, peak: Peak) -> MemoryFacts:
    """``slots``: trials at once that the estimate is for; ``peak``: of a step of one."""
    parts = bank.parts
    base = sum(p.numel() * p.element_size() for p in parts.loaded.model.parameters())
    stack = parts.stack
    own = len(parts.rows.of(0)) * stack.num_parameters * stack.flat_KP.element_size()
    trained = 2 if parts.critic is not None else 1
    per_token = kept_bytes(bank, drawn)
    new_tokens = parts.settings.trainer.max_new_tokens
    rows = parts.settings.trainer.rows
    drawn_tokens = round(_tokens(bank, drawn.rollout) * rows / len(drawn))
    most_tokens = rows * (parts.data.train.width + new_tokens)
    moments = 2 * trained * stack.num_parameters * FLOAT_BYTES
    return MemoryFacts(
        slots=slots,
        base=base,
        adapters=slots * (2 * own + moments),
        activations=_activations(bank, per_token, most_tokens, new_tokens, slots),
        step_estimate=_activations(
            bank, per_token, drawn_tokens, drawn.rollout.ids_KNT.shape[2], 1
        ),
        step_peak=peak.beyond,
        process_peak=peak.total,
        free=_free(parts.loaded.device),
    )


def _activations(bank: Bank, per_token: float, tokens: int, new_tokens: int, slots: int) -> int:
    """Of the larger of the two phases of a step, drawing or learning; ``tokens``: of all rows, prompts included."""
    parts = bank.parts
    trainer, loaded = parts.settings.trainer, parts.loaded
    at_once = 1 if parts.slot_by_slot else slots
    share = min(parts.micro_batch.size, trainer.rows) / trainer.rows
    states = STATE_COPIES * trainer.rows * new_tokens * loaded.head.in_features * FLOAT_BYTES
    learning = at_once * (states + per_token * tokens * share)
    together = 1 if parts.slot_by_slot and parts.settings.compact else slots
    logits = SAMPLER_COPIES * trainer.rows * loaded.vocabulary * FLOAT_BYTES
    return int(max(learning, together * (tokens * _cache_bytes(bank) + logits)))


def kept_bytes(bank: Bank, drawn: Drawn) -> float:
    """What a pass keeps for its gradient per token of prompt and completion, measured on a few completions."""
    parts = bank.parts
    few = rows_of(drawn.rollout, drawn.few(NUM_ROWS))
    rows = Completions(PaddedPrompts(few.prompts.ids, few.prompts.mask), few.ids_KNT, few.mask_KNT)
    frozen = {p.untyped_storage().data_ptr() for p in parts.loaded.model.parameters()}
    frozen |= {parts.stack.flat_KP.untyped_storage().data_ptr()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in frozen:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        policy = hidden_states(parts.loaded, parts.stack, parts.stack.view((0,)), rows)
        still = Hidden(policy.states_KNTD.detach(), policy.head)
        found = compare(parts.loaded, policy, still, rows, parts.scoring)
    del found, policy
    return sum(kept.values()) / _tokens(bank, few)


def _tokens(bank: Bank, rows: Rollout) -> int:
    """That go through the model: without the padding, where our own forward drops it."""
    if bank.parts.loaded.fused is not None and bank.parts.settings.compact:
        return int(rows.prompts.mask.sum() + rows.mask_KNT.sum())
    return rows.prompts.ids.numel() + rows.ids_KNT.numel()


def _cache_bytes(bank: Bank) -> int:
    """Keys and values of one token of one completion."""
    model = bank.parts.loaded.model
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    pairs = getattr(config, "num_key_value_heads", None) or heads
    size = next(model.parameters()).element_size()
    return 2 * config.num_hidden_layers * pairs * width * size


def _free(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return _field(Path("/proc/meminfo"), "MemAvailable")


def _give_back() -> None:
    """Let the C library return what it holds for later, so that what a step takes shows."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # not glibc: the peak shows less than it was
        return


def _reset_high_water() -> int | None:
    """Start the high-water mark of resident memory anew; the memory held now, or none where that can't be done."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return None
    return _status("VmRSS")


def _status(name: str) -> int | None:
    return _field(_STATUS, name)


def _field(path: Path, name: str) -> int | None:
    """A line ``name: 123 kB`` in bytes."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    return None
