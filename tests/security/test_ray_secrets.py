"""A password in KLTUNE_STORAGE on a cluster: an argument of the actor, then environment; nothing that Ray shows or keeps in logs."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from kltune.errors import ExitCode
from kltune.launch import ray_sweep
from kltune.launch.ray_cluster import Cluster, Shipment, connected
from kltune.launch.ray_sweep import ClusterRequest, run_on_ray
from kltune.launch.ray_worker import NodeWorker
from kltune.launch.request import SweepRequest

ADDRESS = "postgresql://me:geheim-4711@127.0.0.1:1/studies"
SPEC = """
name: typed
task: {builtin: kitchen}
model: {base: builtin:kitchen}
trainer: {steps: 2}
search: {beta: {log: [0.01, 1]}}
budget: {trials: 1}
"""


class _Ray:
    """What Ray is told: what it puts into its logs, its dashboard or process titles, and what an actor is made with."""

    def __init__(self) -> None:
        self.shown: list[object] = []
        self.made_with: list[tuple[Any, ...]] = []

    def init(self, **settings: object) -> None:
        self.shown.append(settings)

    def shutdown(self) -> None: ...

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": "0" * 56, "Resources": {"CPU": 1.0}, "Alive": True}]

    def remote(self, what: type) -> _Ray:
        self.shown.append(what)
        return self

    def options(self, **settings: object) -> Any:
        self.shown.append(settings)
        ray = self

        class Made:
            def remote(self, *args: Any) -> None:
                ray.made_with.append(args)

        return Made()


def test_ray_is_told_the_password_only_as_what_an_actor_is_made_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ray_module = pytest.importorskip("ray")
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("KLTUNE_STORAGE", ADDRESS)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(SPEC, encoding="utf-8")
    ray = _Ray()
    for name in ("init", "shutdown"):
        monkeypatch.setattr(ray_module, name, getattr(ray, name))
    monkeypatch.setattr(ray_sweep, "connected", _connected_to(ray))
    started: list[Any] = []

    def run(sweep: Any, stop: object) -> ExitCode:
        node = next(iter(sweep.cluster.nodes()))
        sweep.cluster.start(node, 0.0, sweep.words, sweep.environ, sweep.marker)
        started.append(repr(sweep))
        return ExitCode.DONE

    monkeypatch.setattr("kltune.launch.ray_sweep._Sweep.run", run)
    run_on_ray(SweepRequest(spec_path=Path("s.yaml")), ClusterRequest())
    ((words, environ, marker),) = ray.made_with
    assert environ == {"KLTUNE_STORAGE": ADDRESS}
    for told in (ray.shown, words, marker, started, caplog.text):
        assert "geheim" not in str(told)
    assert any("runtime_env" in str(told) for told in ray.shown)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"geheim" in path.read_bytes()]


def _connected_to(ray: _Ray) -> Any:
    @contextmanager
    def connects(address: str | None, shipment: Shipment) -> Any:
        with connected(address, shipment):
            yield Cluster(ray)

    return connects


def test_the_process_of_a_worker_has_the_password_in_its_environment_alone() -> None:
    worker = NodeWorker(("worker", "no-such-study"), {"KLTUNE_STORAGE": ADDRESS})
    try:
        process = psutil.Process(worker.place().pid)
        assert "geheim" not in " ".join(process.cmdline())
        assert process.environ()["KLTUNE_STORAGE"] == ADDRESS
        lines: list[str] = []
        while True:
            news = worker.news(1.0)
            lines += news.lines
            if news.code is not None:
                break
        assert "geheim" not in " ".join(lines)
    finally:
        worker.stop()
