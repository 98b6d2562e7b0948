"""What a cluster's sweep shows: lines without a terminal, a table on one."""

from __future__ import annotations

import io

from kltune.launch.fleet import Fleet
from kltune.launch.fleet_screen import FleetScreen


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _fleet(workers: int) -> Fleet:
    fleet = Fleet(most=100, gpus=1.0)
    for number in range(workers):
        fleet.start(f"node{number % 2}-0123456789")
    return fleet


def test_lines_name_the_worker_and_a_count_is_said_once() -> None:
    stream = io.StringIO()
    with FleetScreen("study", stream) as screen:
        screen.line(3, "trial 0 starts")
        screen.line(None, "worker 3 is lost")
        for _ in range(3):
            screen.show(_fleet(2), None)
    assert stream.getvalue().splitlines() == [
        "worker 3: trial 0 starts",
        "worker 3 is lost",
        "study: getting ready; 2 workers on 2 nodes",
    ]


def test_one_is_one() -> None:
    stream = io.StringIO()
    FleetScreen("study", stream).show(_fleet(1), None)
    assert "1 worker on 1 node\n" in stream.getvalue()


def test_control_characters_of_a_worker_do_nothing_to_the_terminal() -> None:
    stream = io.StringIO()
    FleetScreen("study", stream).line(0, "\x1b[2Jgone")
    assert "\x1b" not in stream.getvalue()


def test_on_a_terminal_workers_stand_in_a_table_and_a_large_fleet_is_counted(monkeypatch) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    stream = _Terminal()
    with FleetScreen("study", stream) as screen:
        screen.line(0, "trial 0 step 3/9")
        screen.show(_fleet(40), None)
    shown = stream.getvalue()
    assert "said last" in shown
    assert "trial 0 step 3/9" in shown
    assert "and 16 more" in shown
