"""An address in, whether anything takes a connection there out; in time, whatever a name server or a network does."""

from __future__ import annotations

import socket
import threading
import urllib.parse
from collections.abc import Mapping
from typing import Final

REACH_S: Final = 5.0
"""Within this a server must take a connection."""
_PORTS: Final[Mapping[str, int]] = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}


def place_of(address: str) -> tuple[str, int] | None:
    """Host and port of an address; none where it has none, or they can't be told.

    ``host:port``, ``scheme://user@host:port/...``; a database's port is the usual one where it is left out.
    """
    text = address if "://" in address else f"//{address}"
    try:
        parts = urllib.parse.urlsplit(text)
        port = parts.port or _PORTS.get(parts.scheme.partition("+")[0].lower())
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname and port else None


def listens(host: str, port: int, seconds: float = REACH_S) -> bool:
    """Whether something takes a connection there; a name that is looked up for ever counts as nothing."""
    found: list[bool] = []

    def ask() -> None:
        try:
            socket.create_connection((host, port), timeout=seconds).close()
        except (OSError, OverflowError, UnicodeError):
            return
        found.append(True)

    # A daemon: looking a name up can't be interrupted, and must not keep the process from ending.
    asking = threading.Thread(target=ask, daemon=True, name="kltune-reach")
    asking.start()
    asking.join(seconds)
    return bool(found)
