from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kltune.metrics.mirror_lock import MirrorLock

HOLD = """
import sys
from pathlib import Path
from kltune.metrics.mirror_lock import MirrorLock
lock = MirrorLock(Path(sys.argv[1]))
assert lock.take()
print("held", flush=True)
sys.stdin.read()
"""


def test_one_process_holds_it_until_it_lets_go(tmp_path: Path) -> None:
    one, other = MirrorLock(tmp_path), MirrorLock(tmp_path)
    assert one.take()
    assert one.take()
    assert not other.take()
    assert (one.is_held, other.is_held) == (True, False)
    one.release()
    assert other.take()
    other.release()


def test_it_is_free_the_moment_its_process_is_killed(tmp_path: Path) -> None:
    lock = MirrorLock(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert not lock.take()
        holder.kill()
        holder.wait()
    assert lock.take()
    lock.release()
