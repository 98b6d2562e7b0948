"""An address in, a Ray cluster that workers can be started on out: nodes, actors, and what to ship to them.

The one module that imports Ray (extra ``kltune[ray]``).
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import kltune
from kltune.errors import EnvironmentMissingError, SpecError
from kltune.launch.fleet import Nodes
from kltune.launch.ray_worker import News, NodeWorker, Place
from kltune.metrics.reach import REACH_S, listens, place_of

_EXCLUDED: Final = (
    "studies", ".git", ".venv", "venv", "node_modules", "mlruns", "wandb", "__pycache__", ".cache",
)  # fmt: skip
"""Folders of a project that no worker reads."""
_MOST_SHIPPED: Final = 200 * 2**20
"""Bytes; Ray itself refuses 512 MiB."""


@dataclass(frozen=True, slots=True)
class Shipment:
    """What every worker gets a copy of."""

    folder: Path
    """Becomes the worker's current folder."""
    spec: Path
    """Of the spec, relative to it."""

    @classmethod
    def of(cls, spec_path: Path) -> Shipment:
        """The current folder where the spec is below it, as paths in a spec are looked up there; else the spec's.

        Raises `SpecError` where that is too much to send around.
        """
        here, spec = Path.cwd(), spec_path.absolute()
        folder = here if spec.is_relative_to(here) else spec.parent
        size = _size(folder)
        if size > _MOST_SHIPPED:
            raise SpecError(
                f"{folder}: {size / 2**20:,.0f} MiB would be sent to every node (at most "
                f"{_MOST_SHIPPED / 2**20:,.0f}). Start kltune from a folder with the spec and what it "
                "names; large files belong on a folder that the nodes share, by their absolute path"
            )
        return cls(folder, spec.relative_to(folder))


class Cluster:
    """A connection to Ray."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def nodes(self) -> Nodes:
        """Resources of the nodes that live, by id."""
        return {
            node["NodeID"]: node["Resources"] for node in self._ray.nodes() if node.get("Alive")
        }

    def start(
        self,
        node: str,
        gpus: float,
        words: Sequence[str],
        environ: Mapping[str, str],
        must_see: str | None,
    ) -> Any:
        """An actor on ``node``, whose worker runs ``kltune WORDS``."""
        strategy = _on_node(node)
        actor = self._ray.remote(NodeWorker).options(
            num_cpus=0 if gpus else 1,
            num_gpus=gpus,
            max_restarts=0,
            max_concurrency=2,  # it is told to stop while it is asked for news
            scheduling_strategy=strategy,
        )
        return actor.remote(words, environ, must_see)

    def ready(self, refs: Sequence[Any], seconds: float) -> list[Any]:
        """Those of the calls that have been answered, by now or within ``seconds``."""
        done, _ = self._ray.wait(list(refs), num_returns=1, timeout=seconds)
        more, _ = self._ray.wait(list(refs), num_returns=len(refs), timeout=0)
        return list({*done, *more})

    def answer(self, ref: Any) -> News | Place | str | None:
        """What a call gave; the reason, in words, where its actor or node is lost or never came to life."""
        try:
            return self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            return _last_line(error.cause if error.cause is not None else error)
        except self._ray.exceptions.RayError as error:
            return _last_line(error)

    def drop(self, actor: Any) -> None:
        """End an actor, and with it its worker."""
        self._ray.kill(actor, no_restart=True)


@contextmanager
def connected(address: str | None, shipment: Shipment) -> Generator[Cluster]:
    """Be connected to a cluster inside the block.

    ``address``: ``auto``, ``host:port`` or ``ray://host:port``; none: that of RAY_ADDRESS, one that runs on
    this machine, or a new one of this machine alone.

    Raises:
        EnvironmentMissingError: Ray is not installed, or nobody answers there.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # telemetry is off unless asked for
    # Ray would hide the GPUs from workers that ask for none; ours choose by the spec.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    refuse_silent(address)
    try:
        import ray
    except ImportError:
        raise EnvironmentMissingError(
            "--on ray needs Ray, which is not installed here: pip install 'kltune[ray]'"
        ) from None
    environment = {
        "working_dir": str(shipment.folder),
        "py_modules": [str(Path(kltune.__file__).parent)],
        "excludes": [f"**/{name}/**" for name in _EXCLUDED],
        "env_vars": {"RAY_USAGE_STATS_ENABLED": "0"},
    }
    try:
        logging.getLogger("ray").setLevel(logging.ERROR)  # it says what it leaves out, each time
        ray.init(
            address="local" if address is None and _is_alone() else address,
            runtime_env=environment,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        where = "on this machine" if address is None else f"at {address}"
        raise EnvironmentMissingError(f"no Ray cluster {where}: {_last_line(error)}") from error
    try:
        yield Cluster(ray)
    finally:
        ray.shutdown()


def refuse_silent(address: str | None) -> None:
    """Raise `EnvironmentMissingError` where nobody listens: Ray itself would go on trying for minutes, deaf to signals."""
    given = address or os.environ.get("RAY_ADDRESS")
    place = place_of(given or "")
    if place is not None and not listens(*place):
        where = "RAY_ADDRESS" if address is None else "--address"
        raise EnvironmentMissingError(
            f"{where}: no Ray cluster answers at {place[0]}:{place[1]} (within {REACH_S:.0f} s)"
        )


def _is_alone() -> bool:
    """Whether no cluster of this machine answers, so that a new one is due.

    Ray keeps the address of one in a file that outlives it.
    """
    if os.environ.get("RAY_ADDRESS"):
        return False
    note = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())) / "ray" / "ray_current_cluster"
    try:
        place = place_of(note.read_text(encoding="utf-8").strip())
    except OSError:
        return True
    return place is None or not listens(*place)


def _on_node(node: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id=node, soft=False)


def _last_line(error: BaseException) -> str:
    """What an error says, in one line: Ray's messages hold pages of logs."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def _size(folder: Path) -> int:
    total = 0
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _EXCLUDED]
        total += sum((Path(path) / name).lstat().st_size for name in names)
        if total > 10 * _MOST_SHIPPED:
            break
    return total
