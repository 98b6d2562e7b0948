"""Addresses taken apart, and whether anything is there."""

from __future__ import annotations

import socket
import time

import pytest

from kltune.metrics import reach
from kltune.metrics.reach import listens, place_of


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("head:6379", ("head", 6379)),
        ("ray://head:10001", ("head", 10001)),
        ("[::1]:6379", ("::1", 6379)),
        ("postgresql://u:p%40@db.example/x", ("db.example", 5432)),
        ("mysql+pymysql://u@db.example:3307/x", ("db.example", 3307)),
        ("auto", None),
        ("", None),
        ("head:port", None),
        ("sqlite:///x.db", None),
        ("postgresql:///x?host=/run", None),
    ],
)
def test_an_address_is_taken_apart(address: str, place: tuple[str, int] | None) -> None:
    assert place_of(address) == place


def test_a_server_is_seen_and_a_closed_port_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listens("127.0.0.1", port)
    assert not listens("127.0.0.1", port)


def test_a_name_that_is_looked_up_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object, **__: object) -> None:
        time.sleep(1.5)
        raise OSError("no such host")

    monkeypatch.setattr(reach.socket, "create_connection", slow)
    begin = time.monotonic()
    assert not listens("nohost", 1, seconds=0.2)
    assert time.monotonic() - begin < 1
