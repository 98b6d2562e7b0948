"""A port, or none, in; a free port of this machine's loopback out. A Host header in, whether it is loopback out."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping

from kltune.errors import EnvironmentMissingError, SpecError

LOOPBACK = "127.0.0.1"
_NAMES = frozenset({LOOPBACK, "localhost", "[::1]"})
_HIGHEST = 65535


def is_loopback(host: str | None) -> bool:
    """Whether a Host header names this machine's loopback, at any port (a tunnel may change it).

    A page of somebody else's, whose name was made to lead to 127.0.0.1, sends its own name
    (DNS rebinding): such a request is to be refused.
    """
    if host is None:
        return False
    name, colon, port = host.strip().lower().rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host.strip().lower(), ""
    return name in _NAMES and (port.isdecimal() or not port)


def choose_ports(wanted: Mapping[str, int | None]) -> dict[str, int]:
    """Give every flag its port: the one asked for, else a free one; no two the same.

    Raises:
        SpecError: a port that is in use, is no port, may not be used, or is asked for twice.
        EnvironmentMissingError: this machine has no loopback network.
    """
    asked = [port for port in wanted.values() if port is not None]
    for flag, port in wanted.items():
        if port is not None and asked.count(port) > 1:
            raise SpecError(f"{flag}: port {port} is asked for twice; give each its own")
    # All at once, so that no two get the same; then let go of, for the servers to take.
    held: dict[str, socket.socket] = {}
    try:
        for flag, port in wanted.items():
            held[flag] = _bound(flag, port)
        return {flag: held_socket.getsockname()[1] for flag, held_socket in held.items()}
    finally:
        for held_socket in held.values():
            held_socket.close()


def _bound(flag: str, port: int | None) -> socket.socket:
    if port is not None and not 1 <= port <= _HIGHEST:
        raise SpecError(f"{flag}: {port} is no port; give a number from 1 to {_HIGHEST}")
    taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # As the servers do: a port that was in use a moment ago may be had again.
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((LOOPBACK, port or 0))
        taken.listen(1)
    except OSError as error:
        taken.close()
        raise _refusal(flag, port, error) from error
    return taken


def _refusal(flag: str, port: int | None, error: OSError) -> SpecError | EnvironmentMissingError:
    if port is None:
        return EnvironmentMissingError(f"no port can be had on {LOOPBACK} ({error.strerror})")
    if error.errno == errno.EADDRINUSE:
        return SpecError(
            f"{flag}: port {port} of {LOOPBACK} is in use by another program; give another, or leave "
            f"{flag} out and a free one is chosen"
        )
    return SpecError(f"{flag}: port {port} of {LOOPBACK} can't be used ({error.strerror})")
