"""A folder in, the same folder on the path of Python processes out: none of them then reaches beyond this machine."""

from __future__ import annotations

from pathlib import Path

GUARD = """
import os, socket

LOG = os.environ["TEST_NET_LOG"]
LOCAL = ("127.", "localhost", "::1", "0.0.0.0")

def is_local(family, place):
    return family not in (socket.AF_INET, socket.AF_INET6) or str(place[0]).startswith(LOCAL)

def refuse(what):
    with open(LOG, "a") as log:
        log.write(f"{what}\\n")
    raise ConnectionRefusedError(f"the test lets nothing out: {what}")

class Guarded(socket.socket):
    def connect(self, place):
        return super().connect(place) if is_local(self.family, place) else refuse(place)

    def connect_ex(self, place):
        return super().connect_ex(place) if is_local(self.family, place) else refuse(place)

    def sendto(self, data, *rest):
        return super().sendto(data, *rest) if is_local(self.family, rest[-1]) else refuse(rest[-1])

look_up = socket.getaddrinfo

def getaddrinfo(host, *rest, **more):
    name = host.decode() if isinstance(host, bytes) else host
    if name is None or name == socket.gethostname() or name.startswith(LOCAL):
        return look_up(host, *rest, **more)
    refuse(f"look-up of {name}")

socket.socket, socket.getaddrinfo = Guarded, getaddrinfo
with open(LOG + ".seen", "a") as log:
    log.write(f"{os.getpid()}\\n")
"""


def guarded(folder: Path) -> dict[str, str]:
    """Environment variables for a process; what it and its children try is in ``folder / "out.txt"``."""
    place = folder / "guard"
    place.mkdir()
    (place / "sitecustomize.py").write_text(GUARD, encoding="utf-8")
    return {"PYTHONPATH": str(place), "TEST_NET_LOG": str(folder / "out.txt")}


def attempts(folder: Path) -> str:
    """What was tried; empty where nothing was. At least one process was watched."""
    assert (folder / "out.txt.seen").read_text(encoding="utf-8")
    log = folder / "out.txt"
    return log.read_text(encoding="utf-8") if log.exists() else ""
