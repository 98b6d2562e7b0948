"""Prompts in, token ids out: chat template once, exactly one BOS, left padding with right positions.

Shapes: rows of any count, L prompt tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jinja2 import TemplateError
from torch import Tensor

from kltune.errors import SpecError
from kltune.spec.model import ModelSpec
from kltune.tasks.protocol import Prompt


class PromptEncoder:
    """Turns a prompt's text into the ids that the policy sees."""

    def __init__(self, tokenizer: Any, spec: ModelSpec, max_tokens: int | None = None) -> None:
        """``max_tokens``: longer prompts are refused.

        Raises:
            SpecError: chat is ``always``, or a system message is given, without a template.
        """
        has_template = getattr(tokenizer, "chat_template", None) is not None
        self._uses_chat = spec.chat == "always" or (spec.chat == "auto" and has_template)
        if spec.chat == "always" and not has_template:
            raise SpecError("model.chat: always, but the tokenizer has no chat template; use never")
        if spec.system is not None and not self._uses_chat:
            raise SpecError("model.system: needs a chat template (model.chat auto or always)")
        self._tokenizer, self._system, self._max_tokens = tokenizer, spec.system, max_tokens

    def __call__(self, prompt: Prompt) -> list[int]:
        """Ids of one prompt, ready to be completed.

        Raises:
            SpecError: an empty prompt, one longer than the limit, or a template that raises.
        """
        ids = self._chat(prompt) if self._uses_chat else self._tokenizer.encode(prompt.text)
        if not ids:
            raise SpecError(f"prompt {prompt.id!r} has no tokens (text {prompt.text!r})")
        if self._max_tokens is not None and len(ids) > self._max_tokens:
            raise SpecError(
                f"prompt {prompt.id!r} has {len(ids)} tokens, more than the {self._max_tokens} allowed "
                "(trainer.max_prompt_tokens, or the model's own limit less max_new_tokens)"
            )
        return [int(i) for i in ids]

    def _chat(self, prompt: Prompt) -> list[int]:
        # As text first: the template writes its own special tokens, so the tokenizer must add none.
        text = chat_text(self._tokenizer, prompt.text, self._system)
        return self._tokenizer.encode(text, add_special_tokens=False)


def chat_text(tokenizer: Any, user: str, system: str | None) -> str:
    """One user's message as the tokenizer's chat template writes it, up to where the answer begins.

    Raises:
        SpecError: the template raised; its own words are in the message.
    """
    messages = [{"role": "user", "content": user}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    try:
        return tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    except (
        TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError,
    ) as error:  # fmt: skip
        # A template is the model's own code: all that it can do wrong without breaking Python.
        asked = "" if system is None else " and a system message (model.system)"
        raise SpecError(
            f"model.chat: the tokenizer's chat template refused a user's message{asked}: "
            f"{type(error).__name__}: {error}; mend the template, or set model.chat: never"
        ) from error


@dataclass(frozen=True, slots=True)
class PaddedPrompts:
    """Left-padded ids and their mask, ``[rows, L]``."""

    ids: Tensor
    mask: Tensor
    """Long, 1 at real tokens."""


def pad_left(
    rows: Sequence[Sequence[int]], pad_id: int, device: torch.device, width: int | None = None
) -> PaddedPrompts:
    """Left-pad to the longest row, or to ``width``."""
    width = max(len(row) for row in rows) if width is None else width
    ids = torch.full((len(rows), width), pad_id, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, width - len(row) :] = torch.tensor(row, dtype=torch.long)
        mask[i, width - len(row) :] = 1
    return PaddedPrompts(ids.to(device), mask.to(device))


def positions_of(mask: Tensor) -> Tensor:
    """Position of each token in its own text; padding gets 0: ``[rows, L] -> [rows, L]``."""
    return (mask.cumsum(dim=-1) - 1).clamp(min=0)
