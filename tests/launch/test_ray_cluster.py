"""What is shipped to the nodes of a cluster, and the sentences where there is none."""

from __future__ import annotations

import builtins
import socket
from pathlib import Path
from typing import Any

import pytest

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.launch import ray_cluster
from kltune.launch.ray_cluster import Cluster, Shipment, connected, refuse_silent


def test_the_current_folder_is_shipped_where_the_spec_is_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sweeps").mkdir()
    spec = tmp_path / "sweeps" / "s.yaml"
    spec.write_text("name: s\n")
    monkeypatch.chdir(tmp_path)
    assert Shipment.of(Path("sweeps/s.yaml")) == Shipment(tmp_path, Path("sweeps/s.yaml"))


def test_the_folder_of_a_spec_elsewhere_is_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    spec = tmp_path / "there" / "s.yaml"
    spec.write_text("name: s\n")
    monkeypatch.chdir(tmp_path / "here")
    assert Shipment.of(spec) == Shipment(tmp_path / "there", Path("s.yaml"))


def test_a_folder_with_too_much_in_it_is_refused_with_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "_MOST_SHIPPED", 2**20)
    (tmp_path / "weights.bin").write_bytes(bytes(3 * 2**20))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match="3 MiB would be sent to every node"):
        Shipment.of(Path("s.yaml"))


def test_studies_and_environments_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "_MOST_SHIPPED", 2**20)
    for name in ("studies", ".venv", ".git"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "large").write_bytes(bytes(3 * 2**20))
    monkeypatch.chdir(tmp_path)
    assert Shipment.of(Path("s.yaml")).folder == tmp_path


def test_a_missing_ray_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    there = builtins.__import__

    def absent(name: str, *rest: Any, **more: Any) -> Any:
        if name == "ray":
            raise ImportError(name)
        return there(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with (
        pytest.raises(EnvironmentMissingError, match=r"pip install 'kltune\[ray\]'"),
        connected(None, Shipment(Path(), Path("s.yaml"))),
    ):
        pass


class _Ray:
    """What `Cluster` asks of Ray about nodes."""

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": "a", "Alive": True, "Resources": {"GPU": 2.0}},
            {"NodeID": "b", "Alive": False, "Resources": {"GPU": 8.0}},
        ]


def test_dead_nodes_are_no_places() -> None:
    assert Cluster(_Ray()).nodes() == {"a": {"GPU": 2.0}}


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_an_address_where_nobody_listens_is_one_sentence_before_ray_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for address in (f"127.0.0.1:{_closed_port()}", f"ray://127.0.0.1:{_closed_port()}"):
        with pytest.raises(EnvironmentMissingError, match="--address: no Ray cluster answers"):
            refuse_silent(address)
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{_closed_port()}")
    with pytest.raises(EnvironmentMissingError, match="RAY_ADDRESS: no Ray cluster answers"):
        refuse_silent(None)


def test_an_address_where_somebody_listens_and_words_of_rays_own_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        refuse_silent(f"127.0.0.1:{server.getsockname()[1]}")
    for address in (None, "auto", "local"):
        refuse_silent(address)


def test_a_note_of_a_cluster_that_is_gone_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert ray_cluster._is_alone()
    note = tmp_path / "ray" / "ray_current_cluster"
    note.parent.mkdir()
    note.write_text(f"127.0.0.1:{_closed_port()}\n")
    assert ray_cluster._is_alone()
    with socket.create_server(("127.0.0.1", 0)) as server:
        note.write_text(f"127.0.0.1:{server.getsockname()[1]}")
        assert not ray_cluster._is_alone()
