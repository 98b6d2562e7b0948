"""Token ids of a completion in, where a stop string ends it and which part of its text is the answer out.

A completion ends with the token that completes the first stop string: that token is sampled, counted and
trained like a stop token. Its text ends before the string. Shapes: K slots, N rows, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor

BYTES_PER_CHAR = 4
"""Most bytes of a character, and so most tokens: how far back a stop string can begin."""


@dataclass(frozen=True, slots=True)
class TextRules:
    """What ends a completion by its text, and where its answer begins; the default: nothing."""

    tokenizer: Any = None
    stop: tuple[str, ...] = ()
    """Strings; those that are one special token are stop ids instead."""
    stop_ids: tuple[int, ...] = ()
    """The special tokens among the strings that were asked for."""
    answer_after: str | None = None

    def text(self, ids: Sequence[int]) -> str:
        """As the scorers get it, but whole."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    def place_of_stop(self, ids: Sequence[int]) -> int | None:
        """How many tokens it takes until the text holds a stop string; None: it never does."""
        if not self.stop or not self._stops(ids):
            return None
        low, high = 1, len(ids)
        while low < high:
            middle = (low + high) // 2
            if self._stops(ids[:middle]):
                high = middle
            else:
                low = middle + 1
        return low

    def ended_KN(self, ids_KNT: Tensor, live_KN: Tensor, step: int) -> Tensor:
        """Which of the live rows hold a stop string after the token at ``step``."""
        ended_KN = live_KN.new_zeros(live_KN.shape)
        if not self.stop:
            return ended_KN
        reach = BYTES_PER_CHAR * max(map(len, self.stop)) + 2
        tails_KNT = ids_KNT[..., max(0, step + 1 - reach) : step + 1].tolist()
        for slot, row in live_KN.nonzero().tolist():
            if self._stops(tails_KNT[slot][row]):
                ended_KN[slot, row] = self._stops(ids_KNT[slot, row, : step + 1].tolist())
        return ended_KN

    def cut(
        self, drawn: tuple[Tensor, Tensor, Tensor, Tensor], pad_id: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """End every row at its first stop string: ids, mask and log-probs ``[K, N, T]``, ended ``[K, N]``."""
        if not self.stop:
            return drawn
        ids_KNT, mask_KNT, logprobs_KNT, ended_KN = (tensor.clone() for tensor in drawn)
        lengths_KN, rows_KNT = mask_KNT.sum(dim=-1).tolist(), ids_KNT.tolist()
        for slot, rows in enumerate(rows_KNT):
            for row, ids in enumerate(rows):
                length = self.place_of_stop(ids[: lengths_KN[slot][row]])
                if length is not None:
                    ids_KNT[slot, row, length:] = pad_id
                    mask_KNT[slot, row, length:] = False
                    logprobs_KNT[slot, row, length:] = 0.0
                    ended_KN[slot, row] = True
        return ids_KNT, mask_KNT, logprobs_KNT, ended_KN

    def parts(self, text: str) -> tuple[str, str]:
        """What is thought and what is answered, without the stop string; thought: up to the marker and with it.

        A text without the marker is all thought: it has no answer yet.
        """
        places = [place for stop in self.stop if (place := text.find(stop)) >= 0]
        text = text[: min(places)] if places else text
        if self.answer_after is None:
            return "", text
        before, marker, after = text.partition(self.answer_after)
        return before + marker, after

    def _stops(self, ids: Sequence[int]) -> bool:
        text = self.text(ids)
        return any(stop in text for stop in self.stop)


NO_RULES: Final = TextRules()
"""Completions end at stop ids alone, and all of a text is the answer."""


def text_rules(tokenizer: Any, stop: Sequence[str], answer_after: str | None) -> TextRules:
    """The rules of a spec for a tokenizer; a stop string that is one special token becomes a stop id."""
    special = {
        token: tokenizer.convert_tokens_to_ids(token) for token in tokenizer.all_special_tokens
    }
    return TextRules(
        tokenizer=tokenizer,
        stop=tuple(text for text in stop if text not in special),
        stop_ids=tuple(special[text] for text in stop if text in special),
        answer_after=answer_after,
    )
