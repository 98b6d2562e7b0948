"""Counts of weights and tokens in, useful floating-point operations out.

Useful is what the mathematics asks for, whatever a program does to get there: a prompt is read
once for all completions of its group, padding is nothing, and what is computed a second time to
save memory (activations, logits of a reference whose hidden states are kept) counts once.

- A forward takes 2 operations per weight of a linear layer and token that goes through it
  (Kaplan et al., 2001.08361, table 1). Embedding look-ups take none. Norms, activations, softmax and
  the sampler are left out: they are linear in the width, the matmuls quadratic.
- Attention takes 4 x layers x width per pair of a position and one that it sees, itself included:
  2 x width for the scores, 2 x width for the mix of values. A causal forward has n (n + 1) / 2 pairs.
- Backward through frozen weights takes 2 more (only the gradient of the inputs), through trained
  weights 4 more (that of the weights as well), through attention twice its forward.
- Adapters take 2 per adapter weight and token in a forward, 4 more in a backward.
- A model with experts is counted as if every token went through all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from kltune.spec.trainer import TrainerSpec
from kltune.trainer.adapted_layers import size_of


@dataclass(frozen=True, slots=True)
class ModelSize:
    """What a language model costs per token."""

    body: int
    """Weights in the linear layers between embedding and head."""
    head: int
    """Weights of the head: width x vocabulary."""
    layers: int
    width: int
    """Of the queries of one layer: heads x numbers per head."""

    @classmethod
    def of_shapes(
        cls, linear: Iterable[tuple[int, int]], head: tuple[int, int], layers: int, width: int
    ) -> ModelSize:
        """From the (inputs, outputs) of the body's linear layers and of the head; biases count nothing."""
        return cls(
            sum(rows * columns for rows, columns in linear), head[0] * head[1], layers, width
        )

    @classmethod
    def of(cls, body: nn.Module, head: nn.Linear, config: Any) -> ModelSize:
        """From a body and its config; adapters on its layers hold their weights elsewhere, and are not in it."""
        linear = [size for module in body.modules() if (size := size_of(module)) is not None]
        stacked = [p.shape for p in body.parameters() if p.dim() == 3]
        experts = [(count * rows, columns) for count, rows, columns in stacked]
        layers, heads = config.num_hidden_layers, config.num_attention_heads
        width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
        return cls.of_shapes(
            (*linear, *experts),
            (head.in_features, head.out_features),
            layers,
            width,
        )


@dataclass(frozen=True, slots=True)
class StepTokens:
    """What a step of one slot reads and writes."""

    read: int
    """Positions that go through the body: unique prompts once, and all but the last token of each completion."""
    predicted: int
    """Positions that go through the head: one per completion token."""
    pairs: int
    """Pairs of a position and one that it sees."""

    @classmethod
    def of(
        cls, prompt_lengths: Sequence[int], completion_lengths: Sequence[int], group_size: int
    ) -> StepTokens:
        """From valid lengths in tokens; completion i answers prompt ``i // group_size``.

        Raises:
            ValueError: not ``group_size`` completions to every prompt.
        """
        if len(completion_lengths) != len(prompt_lengths) * group_size:
            raise ValueError(
                f"{len(completion_lengths)} completions are not {group_size} to each of "
                f"{len(prompt_lengths)} prompts"
            )
        # The last token of a completion is predicted, never read.
        read = [max(0, length - 1) for length in completion_lengths]
        pairs = sum(length * (length + 1) // 2 for length in prompt_lengths)
        for index, length in enumerate(read):
            pairs += length * prompt_lengths[index // group_size] + length * (length + 1) // 2
        return cls(sum(prompt_lengths) + sum(read), sum(completion_lengths), pairs)

    @classmethod
    def of_masks(cls, prompt_NL: Tensor, completion_NT: Tensor, group_size: int) -> StepTokens:
        """From one slot's masks of valid tokens; a row's prompt is that of all rows of its group."""
        prompts = prompt_NL[::group_size].sum(dim=-1).tolist()
        return cls.of(prompts, completion_NT.sum(dim=-1).tolist(), group_size)

    def __add__(self, other: StepTokens) -> StepTokens:
        """Both."""
        return StepTokens(
            self.read + other.read, self.predicted + other.predicted, self.pairs + other.pairs
        )


@dataclass(frozen=True, slots=True)
class Passes:
    """How often a step goes over its tokens, and through which weights."""

    epochs: int = 1
    """Passes of training over the rollout."""
    is_on_policy: bool = True
    """One update in all: its log-probs are those of the rollout's weights. Else a forward before it measures them."""
    is_full: bool = False
    """Whether all weights are trained, not adapters."""
    has_critic: bool = False
    """A second set of trained weights, with one number per token in place of a head."""
    has_moving_reference: bool = False
    """KL to the start is measured besides that to the reference, which has trained weights."""

    @classmethod
    def of(cls, trainer: TrainerSpec, *, is_full: bool) -> Passes:
        """As the trainer part of a spec says."""
        return cls(
            epochs=trainer.epochs,
            is_on_policy=trainer.epochs == trainer.minibatches == 1,
            is_full=is_full,
            has_critic=trainer.value_function is not None,
            has_moving_reference=trainer.reference.every is not None,
        )


@dataclass(frozen=True, slots=True)
class StepFlops:
    """Useful floating-point operations of one slot's step."""

    rollout: int
    reference: int
    update: int
    """Log-probs of the policy, values, forward and backward of every pass."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.rollout + self.reference + self.update


def forward_flops(
    size: ModelSize, body_tokens: int, head_tokens: int, pairs: int, adapter_params: int = 0
) -> int:
    """One forward; ``adapter_params`` are the weights of the adapters in use."""
    linear = 2 * (size.body + adapter_params) * body_tokens + 2 * size.head * head_tokens
    return linear + attention_flops(size, pairs)


def backward_flops(
    size: ModelSize,
    tokens: StepTokens,
    adapter_params: int,
    *,
    is_full: bool,
    has_head: bool = True,
) -> int:
    """The backward that follows a forward over the same tokens."""
    per_weight = 4 if is_full else 2
    body = (per_weight * size.body + 4 * adapter_params) * tokens.read
    head = per_weight * size.head * tokens.predicted if has_head else 0
    return body + head + 2 * attention_flops(size, tokens.pairs)


def attention_flops(size: ModelSize, pairs: int) -> int:
    """Scores and the mix of values over so many pairs of positions."""
    return 4 * size.layers * size.width * pairs


def step_flops(
    size: ModelSize, adapter_params: int, tokens: StepTokens, passes: Passes
) -> StepFlops:
    """One training step of one slot; ``adapter_params`` of one policy, 0 under full fine-tuning."""

    def forward(adapters: int, *, has_head: bool = True) -> int:
        predicted = tokens.predicted if has_head else 0
        return forward_flops(size, tokens.read, predicted, tokens.pairs, adapters)

    def backward(*, has_head: bool = True) -> int:
        return backward_flops(
            size, tokens, adapter_params, is_full=passes.is_full, has_head=has_head
        )

    policy = forward(adapter_params)
    measured = 0 if passes.is_on_policy else policy
    update = measured + passes.epochs * (policy + backward())
    if passes.has_critic:
        values = forward(adapter_params, has_head=False)
        measured = 0 if passes.is_on_policy else values
        update += measured + passes.epochs * (values + backward(has_head=False))
    moving = forward(adapter_params) if passes.has_moving_reference else 0
    return StepFlops(rollout=policy, reference=forward(0) + moving, update=update)


def evaluation_flops(size: ModelSize, adapter_params: int, tokens: StepTokens) -> int:
    """One evaluation of one slot: completions, then one pass of the policy and one of the start over them."""
    policy = forward_flops(size, tokens.read, tokens.predicted, tokens.pairs, adapter_params)
    start = forward_flops(size, tokens.read, tokens.predicted, tokens.pairs)
    return 2 * policy + start
