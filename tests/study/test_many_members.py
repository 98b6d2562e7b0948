"""Several real processes on one study: killed, stopped, replaced, with clocks that disagree."""

from __future__ import annotations

import json
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.member_crew import LEASE_S, Crew, check_finished, trials_of
from tests.postgres_case import Database, postgres

__all__ = ("postgres",)

MEMBERS = 8


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    found = Crew(tmp_path, trials=12)
    yield found
    found.close()


def on(database: Database) -> tuple[str, ...]:
    return ("--url", database.url)


def wait_for(what: Callable[[], bool], timeout_s: float = 30) -> None:
    until = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def kill_and_check(crew: Crew, kills: int, steps: int, url: str | None = None) -> int:
    crew.start()
    wait_for((crew.folder / "trials/00000/config.json").exists)  # not while the study is made
    for _ in range(2):
        crew.start()
    killed = crew.kill_at_random(kills, seed=1, pause=(0.3, 1.0))
    crew.wait(1200)
    check_finished(crew.folder, crew.trials, steps, url)
    return killed


def test_whatever_is_killed_every_trial_is_finished_once(crew: Crew) -> None:
    crew.flags = ("--steps", "20", "--step-s", "0.02")
    assert kill_and_check(crew, 8, 20) > 0


@pytest.mark.long
def test_fifty_kills_over_forty_trials_lose_and_double_nothing(crew: Crew) -> None:
    crew.trials = 40
    crew.flags = ("--steps", "40", "--step-s", "0.05")
    assert kill_and_check(crew, 50, 40) == 50


@pytest.mark.long
def test_fifty_kills_on_a_server_lose_and_double_nothing(crew: Crew, postgres: Database) -> None:
    crew.trials = 40
    crew.flags = ("--steps", "40", "--step-s", "0.05", *on(postgres))
    assert kill_and_check(crew, 50, 40, postgres.url) == 50


def test_a_member_that_was_stopped_beyond_its_lease_harms_nothing_and_goes_on(crew: Crew) -> None:
    crew.trials = 4
    crew.flags = ("--steps", "20", "--step-s", "0.05")
    stopped = crew.start()
    first = crew.folder / "trials/00000/checkpoints/last/slot.json"
    wait_for(first.exists)
    stopped.send(signal.SIGSTOP)
    other = crew.start("--step-s", "0.2")
    config = crew.folder / "trials/00000/config.json"
    wait_for(lambda: json.loads(config.read_text())["attempt"] == 2)
    wait_for(lambda: writer(first) == other.pid)
    writers: set[int | None] = set()
    stopped.send(signal.SIGCONT)
    while not other.is_over() and not is_told(crew.folder / "trials/00000"):
        writers.add(writer(first))
        time.sleep(0.02)
    ends = crew.wait(60)
    assert writers - {None} == {other.pid}
    check_finished(crew.folder, 4, 20)
    assert all(end["ended"] > 0 for end in ends)
    assert sum(end["ended"] for end in ends) == 4
    assert crew.log().count("another worker took it over") == 1


def writer(checkpoint: Path) -> int | None:
    """Process that wrote it; none where it is replaced at this moment, or not kept any more."""
    try:
        return int(json.loads(checkpoint.read_text())["pid"])
    except FileNotFoundError:
        return None


def is_told(folder: Path) -> bool:
    rows = (folder / "events.jsonl").read_text().splitlines()
    return any('"done"' in row for row in rows)


def test_clocks_that_are_hours_apart_change_nothing(crew: Crew) -> None:
    crew.flags = ("--steps", "12", "--step-s", "0.1")
    crew.start("--clock-off", "36000")
    crew.start("--clock-off", "-36000")
    crew.start("--clock-jumps")
    ends = crew.wait(60)
    check_finished(crew.folder, 12, 12)
    assert len(trials_of(crew.folder, 12, 12)) == 12  # no attempt was taken for dead
    assert sum(end["ended"] for end in ends) == 12


def work_together(crew: Crew, url: str | None) -> Mapping[str, Sequence[float]]:
    """Seconds of each kind over all members, 25 short trials for each of them."""
    crew.trials = MEMBERS * 25
    crew.flags = (*crew.flags, "--steps", "8", "--step-s", "0.05")
    for _ in range(MEMBERS):
        crew.start()
    ends = crew.wait(1200)
    check_finished(crew.folder, crew.trials, 8, url)
    assert len(trials_of(crew.folder, crew.trials, 8, url)) == crew.trials
    assert [end["waits"] for end in ends] == [0] * MEMBERS
    assert "storage" not in crew.log()
    return {name: [s for end in ends for s in end["seconds"][name]] for name in ends[0]["seconds"]}


def show(where: str, seconds: Mapping[str, Sequence[float]]) -> None:
    """Medians and the longest, in milliseconds, for whoever runs it with -s."""
    for name, values in seconds.items():
        median, longest = 1000 * statistics.median(values), 1000 * max(values)
        row = f"{where} {name}: median {median:.1f} ms, longest {longest:.0f} ms"
        sys.stdout.write(f"{row}, {len(values)} times\n")


@pytest.mark.long
def test_eight_members_on_one_file_have_no_storage_error(crew: Crew) -> None:
    show("sqlite", work_together(crew, None))


@pytest.mark.long
def test_eight_members_on_one_server_have_no_storage_error(crew: Crew, postgres: Database) -> None:
    crew.flags = on(postgres)
    show("postgresql", work_together(crew, postgres.url))


def test_a_lease_of_these_tests_is_short() -> None:
    assert LEASE_S < 5
