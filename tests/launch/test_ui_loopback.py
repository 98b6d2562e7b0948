from __future__ import annotations

import socket

import pytest

from kltune.errors import SpecError
from kltune.launch.ui_loopback import LOOPBACK, choose_ports, is_loopback


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]", "[::1]:80"]
)
def test_the_names_of_loopback_are_answered_at_any_port(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "127.0.0.1:80:80",
        "127.0.0.1:x",
        "evil@127.0.0.1",
        "192.168.0.1",
        "0.0.0.0",
        "[::1]evil:80",
        ":80",
    ],
)
def test_any_other_name_is_refused(host: str | None) -> None:
    assert not is_loopback(host)


def test_free_ports_are_chosen_and_no_two_are_the_same() -> None:
    ports = choose_ports({f"--{n}": None for n in range(20)})
    assert len(set(ports.values())) == 20
    with socket.socket() as taken:  # let go of again
        taken.bind((LOOPBACK, ports["--0"]))


def test_a_port_in_use_is_refused_by_flag_and_number() -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SpecError, match=rf"^--mlflow-port: port {port} .* in use"):
            choose_ports({"--port": None, "--mlflow-port": port})


def test_a_port_that_is_asked_for_is_given() -> None:
    port = choose_ports({"--port": None})["--port"]
    assert choose_ports({"--port": port, "--mlflow-port": None})["--port"] == port


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(SpecError, match=rf"--port: {port} is no port"):
        choose_ports({"--port": port})


def test_one_port_for_two_is_refused() -> None:
    with pytest.raises(SpecError, match="port 50123 is asked for twice"):
        choose_ports({"--port": 50123, "--optuna-port": 50123})
