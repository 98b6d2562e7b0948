"""Completions in, a judge's numbers out: asked in parallel, each question once, within a budget."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from kltune.errors import ServiceError
from kltune.rewards.chat_server import ChatServer, UnfitRequestError
from kltune.rewards.context import RewardContext
from kltune.rewards.fingerprint import digest
from kltune.rewards.judge_record import JudgeRecord
from kltune.rewards.replies import Messages, rating, read_score, reminder
from kltune.spec.judge import JudgeSpec
from kltune.tasks.protocol import Sample

LOG = logging.getLogger(__name__)

_Read = TypeVar("_Read")


class Judge:
    """Asks a model behind an address; what it said before is not asked again."""

    def __init__(
        self, spec: JudgeSpec, context: RewardContext, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Nothing is asked yet.

        Raises:
            EnvironmentMissingError: the variable with the key is not set.
        """
        self._file = f"judge-{context.field.removeprefix('task.').replace('.', '-')}.jsonl"
        path = None if context.folder is None else context.folder / self._file
        self._server = ChatServer(spec, context.field, sleep)
        self._parallel = spec.parallel
        self.record = JudgeRecord(spec, context.field, path)
        self.read = 0
        """Answers that could be read, those that were known before too."""
        self._unread: set[int] = set()

    @property
    def unreadable(self) -> int:
        """Questions to which no reply could be read, or that the server would not take."""
        return len(self._unread)

    def keep_in(self, folder: Path) -> None:
        """Write replies there from now on, those of before too."""
        self.record.keep_in(folder / self._file)

    def ask(
        self, questions: Sequence[Messages], read: Callable[[str], _Read | None]
    ) -> list[_Read | None]:
        """Answers in order; None where neither the first reply nor the one to a reminder can be read.

        Raises:
            ServiceError: the server can't be used, or the budget is spent; replies so far are kept.
        """
        unique: dict[str, Messages] = {repr(question): question for question in questions}
        pool = ThreadPoolExecutor(self._parallel, thread_name_prefix="judge")
        has_failed = threading.Event()

        def one(question: Messages) -> _Read | None:
            # What has not begun when one fails need not begin: the failure is raised below.
            if has_failed.is_set():
                return None
            try:
                return self._one(question, read)
            except ServiceError:
                has_failed.set()
                raise

        try:
            futures = {key: pool.submit(one, question) for key, question in unique.items()}
            answers = {key: future.result() for key, future in futures.items()}
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        unread = {key for key, answer in answers.items() if answer is None}
        self.read += len(answers) - len(unread)
        if (
            new := {hash(key) for key in unread} - self._unread
        ):  # said once, however often it is asked
            self._unread |= new
            LOG.warning("the judge gave no answer that can be read to %d question(s)", len(new))
        return [answers[repr(question)] for question in questions]

    def _one(self, question: Messages, read: Callable[[str], _Read | None]) -> _Read | None:
        reply = self._reply(question)
        answer = None if reply is None else read(reply)
        if reply is None or answer is not None:
            return answer
        again = self._reply(reminder(question, reply))
        return None if again is None else read(again)

    def _reply(self, messages: Messages) -> str | None:
        known = self.record.find(messages)
        if known is not None:
            return known
        claim = self.record.begin(messages)
        reply = None
        try:
            reply = self._server.ask(messages)
        except UnfitRequestError:
            # Where others went well it is this text that is wrong (too long, say); else it is the spec.
            if self.record.calls == 0:
                raise
        finally:
            self.record.end(claim, messages, reply)
        return None if reply is None else reply.text


class JudgeScorer:
    """A judge's number for each completion, on its own scale."""

    def __init__(
        self, spec: JudgeSpec, context: RewardContext, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """As :class:`Judge`."""
        self.name = f"judge {spec.judge}"
        self.fingerprint = digest(spec)
        self.judge = Judge(spec, context, sleep)
        self._spec = spec
        lowest = spec.scale[0] if context.must_score else math.nan
        self._unreadable = lowest if spec.unreadable is None else spec.unreadable

    def keep_in(self, folder: Path) -> None:
        """As :meth:`Judge.keep_in`."""
        self.judge.keep_in(folder)

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        """Ask about each sample; equal ones once.

        Raises:
            ServiceError: the server can't be used, or the budget is spent.
        """
        questions = [rating(self._spec, s.prompt.text, s.text, s.prompt.columns) for s in samples]
        scores = self.judge.ask(questions, lambda reply: read_score(reply, self._spec.scale))
        return [self._unreadable if score is None else score for score in scores]
