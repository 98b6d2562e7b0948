"""Prompt and completion in, token ids as a classifier wants them out: its own template and tokenizer, one BOS."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from jinja2 import TemplateError

from kltune.errors import SpecError
from kltune.spec.rewards import RewardModelSpec
from kltune.tasks.protocol import Prompt, Sample

LOG = logging.getLogger(__name__)

_NO_LIMIT: Final = 10**9
"""Tokenizers without a limit of their own name a far larger one."""


class ClassifierText:
    """Writes and encodes what the classifier reads."""

    def __init__(self, spec: RewardModelSpec, tokenizer: Any, config: Any, field: str) -> None:
        """The tokenizer's side for truncation is set here.

        Raises:
            SpecError: the template that is asked for is not there.
        """
        has_template = getattr(tokenizer, "chat_template", None) is not None
        if spec.template == "always" and not has_template:
            raise SpecError(
                f"{field}.template: always, but the tokenizer of {spec.model} has no chat template; use never"
            )
        self._uses_template = has_template and spec.template != "never" and spec.sees == "both"
        self._spec, self._tokenizer, self._field = spec, tokenizer, field
        tokenizer.truncation_side = spec.truncate
        self.max_tokens = _limit(spec, tokenizer, config)
        """Tokens of the longest text; none: no limit is known."""
        self.truncated = 0
        """Texts that were cut, so far."""

    def write(self, sample: Sample) -> str:
        """The text of one sample.

        Raises:
            SpecError: the template refuses it.
        """
        prompt, spec = sample.prompt, self._spec
        if spec.sees == "completion":
            return sample.text
        if not self._uses_template:
            return f"{prompt.text}{spec.join}{sample.text}"
        messages = [*_messages(prompt), {"role": "assistant", "content": sample.text}]
        try:
            return self._tokenizer.apply_chat_template(messages, tokenize=False)
        except (
            TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError,
        ) as error:  # fmt: skip
            raise SpecError(
                f"{self._field}.template: the chat template of {spec.model} refused a prompt and its answer: "
                f"{type(error).__name__}: {error}; set template: never"
            ) from error

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, special tokens added where no template wrote them, cut where too long."""
        adds = not self._uses_template
        rows = [self._ids(text, adds, None) for text in texts]
        limit = self.max_tokens
        long = [] if limit is None else [i for i, row in enumerate(rows) if len(row) > limit]
        for i in long:
            rows[i] = self._ids(texts[i], adds, limit)
        if long and not self.truncated:
            LOG.warning(
                "%s: texts of more than %d tokens lose their %s end (truncate: %s)",
                self._field, limit, self._spec.truncate, self._spec.truncate,
            )  # fmt: skip
        self.truncated += len(long)
        return rows

    def _ids(self, text: str, adds_special: bool, limit: int | None) -> list[int]:
        cut = {} if limit is None else {"truncation": True, "max_length": limit}
        ids = self._tokenizer(text, add_special_tokens=adds_special, verbose=False, **cut)
        return [int(i) for i in ids["input_ids"]]


def _messages(prompt: Prompt) -> list[dict[str, Any]]:
    if prompt.messages:
        return [dict(message) for message in prompt.messages]
    return [{"role": "user", "content": prompt.text}]


def _limit(spec: RewardModelSpec, tokenizer: Any, config: Any) -> int | None:
    text = config.get_text_config()
    positions = getattr(text, "max_position_embeddings", None)
    if positions is not None and "roberta" in str(getattr(text, "model_type", "")):
        # Its positions are counted from the pad id on.
        positions -= (text.pad_token_id or 0) + 1
    given = [spec.max_tokens, tokenizer.model_max_length, positions]
    known = [int(limit) for limit in given if limit is not None and 0 < limit < _NO_LIMIT]
    return min(known) if known else None
