"""Replies of a judge on disk: asked once, kept for the study, and counted against its budget."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
import time
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kltune.errors import ServiceError
from kltune.metrics.jsonl import append_rows, read_rows_from
from kltune.rewards.chat_server import Reply
from kltune.rewards.judge_budget import Use, is_limited, lacking_words, most_of, spent_words
from kltune.rewards.replies import Messages
from kltune.spec.judge import JudgeSpec

_LOOK_AGAIN_S: Final = 0.1
"""Where others' requests may leave room, how often that is looked at, in seconds."""
_GRACE_S: Final = 60.0
"""Beyond its attempts, how long a request of a process that died keeps its room, in seconds."""
_AGAIN: Final = "raise it and run the same command again: its answers so far are kept"


class JudgeRecord:
    """What a judge said so far, in all processes of a study; safe among threads.

    A request takes room in the budget before it is sent, as much as it may cost at most, in the file where there
    is one: no budget is ever passed, however many ask at once.
    """

    def __init__(self, spec: JudgeSpec, field: str, path: Path | None) -> None:
        """``path``: a JSONL file that may not be there yet; none: in memory until :meth:`keep_in`."""
        self._spec, self._field, self._path = spec, field, path
        self._room = threading.Condition()
        self._replies: dict[str, str] = {}
        self._unwritten: list[dict[str, object]] = []
        self._offset = 0
        self._claims: dict[str, tuple[Use, float]] = {}
        self._used = Use()

    @property
    def calls(self) -> int:
        """Requests that were answered."""
        return self._used.calls

    @property
    def tokens(self) -> int:
        """Read and written."""
        return self._used.tokens

    @property
    def money(self) -> float | None:
        """In the unit of the prices; none where there are none."""
        return self._used.money(self._spec)

    def keep_in(self, path: Path) -> None:
        """From now on keep replies there, those of before too; nothing changes where they have a file already."""
        with self._room:
            if self._path is not None:
                return
            append_rows(path, self._unwritten)
            # All is read again, with what others wrote.
            self._path, self._unwritten, self._replies = path, [], {}
            self._used = Use()
            self._catch_up()

    def find(self, messages: Messages) -> str | None:
        """The reply to the same question to the same model under the same settings."""
        with self._room:
            self._catch_up()
            return self._replies.get(self._key(messages))

    def begin(self, messages: Messages) -> str:
        """Make room for one request; :meth:`end` gives the room back by the name that is returned.

        Waits while requests under way may leave enough.

        Raises:
            ServiceError: the budget is spent, or what is left of it may not do for this request.
        """
        most = most_of(self._spec, messages)
        with self._room:
            while True:
                with self._alone():
                    self._catch_up()
                    self._refuse(most)
                    if lacking_words(self._spec, self._claimed(), most) is None:
                        return self._claim(most)
                self._room.wait(_LOOK_AGAIN_S)

    def end(self, claim: str, messages: Messages, reply: Reply | None) -> None:
        """Keep what came of a request that :meth:`begin` made room for; none: nothing came."""
        with self._room:
            row: dict[str, object] = {"schema": 1, "claim": claim, "released": True}
            if reply is not None:
                row = {
                    "schema": 1,
                    "key": self._key(messages),
                    "judge": self._spec.judge,
                    "reply": reply.text,
                    "tokens_in": reply.tokens_in,
                    "tokens_out": reply.tokens_out,
                    "claim": claim,
                }
            if self._path is not None and (reply is not None or is_limited(self._spec)):
                append_rows(self._path, [row])
                self._catch_up()
            else:
                if reply is not None:
                    self._unwritten.append(row)
                self._take(row)
            self._room.notify_all()

    def _refuse(self, most: Use) -> None:
        """By what was answered alone: what is under way may come to less than its room."""
        spent = spent_words(self._spec, self._used)
        if spent is not None:
            raise ServiceError(f"{self._field}.budget: the judge's {spent} are spent; {_AGAIN}")
        lacking = lacking_words(self._spec, self._used, most)
        if lacking is not None:
            raise ServiceError(
                f"{self._field}.budget: the next request may take {lacking}; {_AGAIN}"
            )

    def _claimed(self) -> Use:
        """What was used and what may be by requests under way."""
        now = time.time()
        under_way = [use for use, until in self._claims.values() if until > now]
        return sum(under_way, self._used)

    def _claim(self, most: Use) -> str:
        name = uuid.uuid4().hex[:12]
        spec = self._spec
        until = time.time() + (spec.retries + 1) * (spec.timeout + _GRACE_S)
        if self._path is not None and is_limited(spec):
            room = [most.tokens_in, most.tokens_out]
            row = {"schema": 1, "claim": name, "room": room, "until": round(until, 3)}
            append_rows(self._path, [row])
            self._catch_up()
        else:
            self._claims[name] = (most, until)
        return name

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Among processes: between a look at the file and a claim in it nobody else claims."""
        if self._path is None or not is_limited(self._spec):
            yield
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _catch_up(self) -> None:
        if self._path is not None:
            rows, self._offset = read_rows_from(self._path, self._offset)
            for row in rows:
                self._take(row)

    def _take(self, row: Mapping[str, Any]) -> None:
        name = str(row.get("claim", ""))
        if "room" in row:
            self._claims[name] = (Use(1, *row["room"]), float(row["until"]))
            return
        self._claims.pop(name, None)
        if "key" in row:
            self._replies[str(row["key"])] = str(row["reply"])
            self._used += Use(1, int(row["tokens_in"]), int(row["tokens_out"]))

    def _key(self, messages: Messages) -> str:
        asked = [self._spec.judge, self._spec.temperature, self._spec.max_tokens, messages]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()
