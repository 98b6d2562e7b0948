"""Workers of a cluster, its nodes, and how each worker ended in; whom to start next, and where, out; pure.

A worker that ends by itself with a code of a settled study needs no successor. One that was terminated, killed
or lost with its node is replaced, wherever there is room. One that fails is replaced as well, but not
for ever: where nothing came of the last few, whatever fails would fail again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kltune.errors import ExitCode

MOST_IN_VAIN: Final = 3
"""Failures in a row, over the whole fleet, with no trial ended between them."""
MOST_ON_A_NODE: Final = 2
"""Failures on one node; after them it is left alone while there are others."""

_SETTLED: Final = frozenset({ExitCode.DONE, ExitCode.NO_FEASIBLE_TRIAL})
_REFUSED: Final = frozenset({ExitCode.USAGE, ExitCode.ENVIRONMENT})
"""What the next one would say as well, on a node of the same kind."""

Nodes = Mapping[str, Mapping[str, float]]
"""Resources of each living node, by its id; names as Ray's: GPU, CPU."""


@dataclass(slots=True)
class Fleet:
    """The account of one sweep's workers."""

    most: int
    """Workers at once; there is no use in more than trials are left."""
    gpus: float
    """GPUs of one worker, may be a fraction; 0: none, one worker a node, which shares its cores itself."""
    started: int = 0
    running: dict[int, str] = field(default_factory=dict[int, str])
    """Node of each worker."""
    is_settled: bool = False
    """Whether a worker found nothing left to do."""
    gave_up: str | None = None
    """Why nobody is started any more."""
    refusal: ExitCode | None = None
    """The code of a worker that the spec or its machine does not allow."""
    _in_vain: int = 0
    _trials_ended: int = 0
    _failed_on: Counter[str] = field(default_factory=Counter[str])

    def start(self, node: str) -> int:
        """Take a new worker in; its number for life."""
        number = self.started
        self.started += 1
        self.running[number] = node
        return number

    def places(self, nodes: Nodes) -> list[str]:
        """A node for each worker to start now; those that are emptiest first."""
        if self.is_settled or self.gave_up is not None:
            return []
        busy = Counter(self.running.values())
        good = [node for node in nodes if self._failed_on[node] < MOST_ON_A_NODE] or list(nodes)
        room = {node: self._holds(nodes[node]) - busy[node] for node in good}
        found: list[str] = []
        while len(found) < self.most - len(self.running):
            node = max(room, key=lambda one: room[one], default=None)
            if node is None or room[node] < 1:
                break
            room[node] -= 1
            found.append(node)
        return found

    def ended(self, number: int, code: int | None, words: str, trials_ended: int) -> str:
        """A worker is gone; say so in a line.

        ``code``: of its exit, none where the node or the actor was lost. ``words``: its last line, or
        Ray's reason. ``trials_ended``: of the study, by now.
        """
        node = self.running.pop(number)
        if code in _SETTLED:
            self.is_settled = True
            return f"worker {number} is done"
        if code in _REFUSED:
            self.refusal, self.gave_up = ExitCode(code), words
            return f"worker {number} can't work: {words}"
        if trials_ended > self._trials_ended:
            self._in_vain = 0
            self._failed_on.clear()
        self._trials_ended = trials_ended
        if code != ExitCode.TERMINATED:
            self._in_vain += 1
            self._failed_on[node] += 1
        what = "is lost" if code is None else f"ended with code {code}"
        if self._in_vain >= MOST_IN_VAIN:
            self.gave_up = f"{self._in_vain} workers in a row ended with nothing done: {words}"
        return f"worker {number} {what}: {words}"

    def _holds(self, resources: Mapping[str, float]) -> int:
        if self.gpus > 0:
            return int(resources.get("GPU", 0.0) / self.gpus + 1e-9)
        return int(resources.get("CPU", 0.0) >= 1)
