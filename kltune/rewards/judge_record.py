"""Replies of a judge on disk: asked once, kept for the study, and counted against its budget."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import Final

from kltune.errors import ServiceError
from kltune.metrics.jsonl import append_rows, read_rows_from
from kltune.rewards.chat_server import Reply
from kltune.rewards.replies import Messages
from kltune.spec.judge import JudgeSpec

_MILLION: Final = 1e6


class JudgeRecord:
    """What a judge said so far, in all processes of a study; safe among threads."""

    def __init__(self, spec: JudgeSpec, field: str, path: Path | None) -> None:
        """``path``: a JSONL file that may not be there yet; none: in memory until :meth:`keep_in`."""
        self._spec, self._field, self._path = spec, field, path
        self._lock = threading.Lock()
        self._replies: dict[str, str] = {}
        self._unwritten: list[dict[str, object]] = []
        self._offset = 0
        self._under_way = 0
        self.calls = self.tokens_in = self.tokens_out = 0

    @property
    def tokens(self) -> int:
        """Read and written."""
        return self.tokens_in + self.tokens_out

    @property
    def money(self) -> float | None:
        """In the unit of the prices; none where there are none."""
        if self._spec.price_in is None or self._spec.price_out is None:
            return None
        cost = self.tokens_in * self._spec.price_in + self.tokens_out * self._spec.price_out
        return cost / _MILLION

    def keep_in(self, path: Path) -> None:
        """From now on keep replies there, those of before too; nothing changes where they have a file already."""
        with self._lock:
            if self._path is not None:
                return
            append_rows(path, self._unwritten)
            # All is read again, with what others wrote.
            self._path, self._unwritten, self._replies = path, [], {}
            self.calls = self.tokens_in = self.tokens_out = 0
            self._catch_up()

    def find(self, messages: Messages) -> str | None:
        """The reply to the same question to the same model under the same settings."""
        with self._lock:
            self._catch_up()
            return self._replies.get(self._key(messages))

    def begin(self) -> None:
        """Make room for one request.

        Raises:
            ServiceError: the budget is spent.
        """
        with self._lock:
            self._catch_up()
            spent = self._spent()
            if spent is not None:
                raise ServiceError(
                    f"{self._field}.budget: the judge's {spent} are spent; raise it and run the same command again: "
                    "its answers so far are kept"
                )
            self._under_way += 1

    def end(self, messages: Messages, reply: Reply | None) -> None:
        """Keep what came of a request that :meth:`begin` made room for; none: nothing came."""
        with self._lock:
            self._under_way -= 1
            if reply is None:
                return
            row: dict[str, object] = {
                "schema": 1,
                "key": self._key(messages),
                "judge": self._spec.judge,
                "reply": reply.text,
                "tokens_in": reply.tokens_in,
                "tokens_out": reply.tokens_out,
            }
            if self._path is None:
                self._unwritten.append(row)
                self._take(row)
            else:
                append_rows(self._path, [row])
                self._catch_up()

    def _spent(self) -> str | None:
        budget = self._spec.budget
        # What is under way in this process counts, so that it alone never goes beyond.
        if budget.calls is not None and self.calls + self._under_way >= budget.calls:
            return f"{budget.calls} call(s)"
        if budget.tokens is not None and self.tokens >= budget.tokens:
            return f"{budget.tokens} tokens"
        if budget.money is not None and (self.money or 0.0) >= budget.money:
            return f"{budget.money:g} in money"
        return None

    def _catch_up(self) -> None:
        if self._path is not None:
            rows, self._offset = read_rows_from(self._path, self._offset)
            for row in rows:
                self._take(row)

    def _take(self, row: dict[str, object]) -> None:
        self._replies[str(row["key"])] = str(row["reply"])
        self.calls += 1
        self.tokens_in += int(str(row["tokens_in"]))
        self.tokens_out += int(str(row["tokens_out"]))

    def _key(self, messages: Messages) -> str:
        asked = [self._spec.judge, self._spec.temperature, self._spec.max_tokens, messages]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()
