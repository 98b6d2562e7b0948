"""A kept child answers line by line, and is replaced when it hangs or dies."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import pytest

from kltune.errors import EnvironmentMissingError
from kltune.rewards.line_worker import LineWorker

MAIN = """
import json, os, sys, time
print("{}", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    if job["do"] == "hang":
        time.sleep(60)
    if job["do"] == "die":
        os._exit(1)
    if job["do"] == "mumble":
        print("no json", flush=True)
        continue
    print(json.dumps({"pid": os.getpid(), "got": job["do"]}), flush=True)
"""


def worker(tmp_path: Path, text: str = MAIN) -> LineWorker:
    path = tmp_path / "main.py"
    path.write_text(text)
    return LineWorker(path)


def test_one_child_answers_all(tmp_path: Path) -> None:
    made = worker(tmp_path)
    answers = [made.ask({"do": "é" * n}, 5) for n in (1, 100_000)]
    assert [a and len(a["got"]) for a in answers] == [1, 100_000]
    assert len({a["pid"] for a in answers if a}) == 1
    made.close()


@pytest.mark.parametrize("does", ["hang", "die", "mumble"])
def test_a_job_that_breaks_the_child_is_lost_and_the_next_one_is_not(
    tmp_path: Path, does: str
) -> None:
    made = worker(tmp_path)
    first = made.ask({"do": "a"}, 5)
    start = time.monotonic()
    assert made.ask({"do": does}, 0.1) is None
    assert time.monotonic() - start < 4
    second = made.ask({"do": "b"}, 5)
    assert first is not None
    assert second is not None
    assert first["pid"] != second["pid"]
    made.close()


def test_a_child_that_does_not_come_up_is_told(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentMissingError, match=r"main\.py does not come up"):
        worker(tmp_path, "raise SystemExit(3)").ask({"do": "a"}, 5)


def test_the_child_goes_with_its_owner(tmp_path: Path) -> None:
    made = worker(tmp_path)
    answer = made.ask({"do": "a"}, 5)
    assert answer is not None
    assert Path(f"/proc/{answer['pid']}").exists()
    del made
    gc.collect()
    assert not Path(f"/proc/{answer['pid']}").exists()
