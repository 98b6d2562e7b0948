"""Prompts in, token ids out: chat template once, exactly one BOS, left padding with right positions.

Shapes: rows of any count, L prompt tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from jinja2 import Environment, TemplateError, meta
from torch import Tensor

from kltune.errors import SpecError
from kltune.spec.model import ModelSpec
from kltune.tasks.protocol import Prompt

THINKING_SWITCHES: Final = ("enable_thinking", "thinking")
"""What chat templates call the switch of model.thinking: Qwen 3 and others; DeepSeek V3.1, Granite."""


class PromptEncoder:
    """Turns a prompt into the ids that the policy sees."""

    def __init__(
        self,
        tokenizer: Any,
        spec: ModelSpec,
        max_tokens: int | None = None,
        known_ids: int | None = None,
    ) -> None:
        """``max_tokens``: longer prompts are refused; ``known_ids``: of the model, no prompt may use one beyond.

        Raises:
            SpecError: chat is ``always``, or a system message or thinking is asked for, without a template
                that can do it.
        """
        has_template = getattr(tokenizer, "chat_template", None) is not None
        self._uses_chat = spec.chat == "always" or (spec.chat == "auto" and has_template)
        if spec.chat == "always" and not has_template:
            raise SpecError("model.chat: always, but the tokenizer has no chat template; use never")
        if spec.system is not None and not self._uses_chat:
            raise SpecError("model.system: needs a chat template (model.chat auto or always)")
        self._switches = _thinking(tokenizer, spec, uses_chat=self._uses_chat)
        self._tokenizer, self._system, self.max_tokens = tokenizer, spec.system, max_tokens
        self._known_ids = known_ids

    def __call__(self, prompt: Prompt) -> list[int]:
        """Ids of one prompt, ready to be completed.

        Raises:
            SpecError: as :meth:`ids`, and a prompt longer than the limit.
        """
        ids = self.ids(prompt)
        if self.max_tokens is not None and len(ids) > self.max_tokens:
            raise SpecError(
                f"prompt {prompt.id!r} has {len(ids)} tokens, more than the {self.max_tokens} allowed "
                "(trainer.max_prompt_tokens, or the model's own limit less max_new_tokens)"
            )
        return ids

    def ids(self, prompt: Prompt) -> list[int]:
        """Ids of one prompt, however many.

        Raises:
            SpecError: an empty prompt, a conversation without a template, a template that raises, an id that the
                model has not.
        """
        if self._uses_chat:
            ids = self._chat(prompt)
        elif prompt.messages:
            raise SpecError(
                f"task.prompts: prompt {prompt.id!r} is a conversation (a list of messages), which needs a chat "
                "template: the tokenizer has none, or model.chat is never; give plain texts"
            )
        else:
            ids = self._tokenizer.encode(prompt.text)
        if not ids:
            raise SpecError(f"prompt {prompt.id!r} has no tokens (text {prompt.text!r})")
        if self._known_ids is not None:
            refuse_unknown(self._tokenizer, ids, self._known_ids, f"prompt {prompt.id!r}")
        return [int(i) for i in ids]

    def _chat(self, prompt: Prompt) -> list[int]:
        # As text first: the template writes its own special tokens, so the tokenizer must add none.
        text = render_chat(self._tokenizer, self._turns(prompt), self._switches)
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _turns(self, prompt: Prompt) -> list[dict[str, Any]]:
        turns = [dict(turn) for turn in prompt.messages] or [
            {"role": "user", "content": prompt.text}
        ]
        if self._system is None:
            return turns
        if turns[0]["role"] == "system":
            raise SpecError(
                f"model.system: prompt {prompt.id!r} has a system message of its own; leave one of them out"
            )
        return [{"role": "system", "content": self._system}, *turns]


def refuse_unknown(tokenizer: Any, ids: Sequence[int], known_ids: int, user: str) -> None:
    """See to it that the model has every id that ``user`` (a prompt, the stop tokens, ...) needs.

    Raises:
        SpecError: it lacks one; with how many tokenizer and model have.
    """
    beyond = next((i for i in ids if i >= known_ids), None)
    if beyond is not None:
        token = str(tokenizer.convert_ids_to_tokens(int(beyond)))[:40]
        raise SpecError(
            f"model.base: {user} needs id {beyond} ({token!r}), which the model has not: its tokenizer has "
            f"{len(tokenizer):,} ids, the model {known_ids:,}; give the tokenizer that the model was trained with, or "
            "a model that was enlarged for this one and trained on it (resize_token_embeddings)"
        )


def _thinking(tokenizer: Any, spec: ModelSpec, *, uses_chat: bool) -> dict[str, bool]:
    """What the template is told about thinking."""
    if spec.thinking == "default":
        return {}
    known = _template_variables(tokenizer) if uses_chat else frozenset[str]()
    switch = next((name for name in THINKING_SWITCHES if name in known), None)
    if switch is None:
        why = (
            f"the tokenizer's chat template has no switch for it ({' or '.join(THINKING_SWITCHES)})"
            if uses_chat
            else "no chat template is used, and only a template can say so"
        )
        raise SpecError(f"model.thinking: {spec.thinking}, but {why}; leave it out")
    return {switch: spec.thinking == "on"}


def _template_variables(tokenizer: Any) -> frozenset[str]:
    """Variables that the chat template reads and does not set."""
    template: str = tokenizer.get_chat_template()
    environment = Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=False)
    try:
        return frozenset(meta.find_undeclared_variables(environment.parse(template)))
    except TemplateError:  # a tag of transformers' own
        return frozenset(re.findall(r"\w+", template))


def chat_text(tokenizer: Any, user: str, system: str | None) -> str:
    """One user's message as the tokenizer's chat template writes it, up to where the answer begins.

    Raises:
        SpecError: the template raised; its own words are in the message.
    """
    turns = [{"role": "user", "content": user}]
    if system is not None:
        turns.insert(0, {"role": "system", "content": system})
    return render_chat(tokenizer, turns, {})


def render_chat(tokenizer: Any, turns: list[dict[str, Any]], switches: Mapping[str, bool]) -> str:
    """A conversation as the tokenizer's chat template writes it, up to where the answer begins.

    Raises:
        SpecError: the template raised; its own words are in the message.
    """
    try:
        return tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, tokenize=False, **switches
        )
    except (
        TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError,
    ) as error:  # fmt: skip
        # A template is the model's own code: all that it can do wrong without breaking Python.
        roles = [turn["role"] for turn in turns]
        asked = " and a system message (model.system)" if roles == ["system", "user"] else ""
        said = "a user's message" if roles[-1:] == ["user"] and len(roles) < 3 else " ".join(roles)
        raise SpecError(
            f"model.chat: the tokenizer's chat template refused {said}{asked}: "
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
