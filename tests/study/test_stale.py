from __future__ import annotations

from kltune.study.stale import Watch


def watched(*seconds: float) -> tuple[Watch, list[float]]:
    now = [0.0]
    watch = Watch(60, clock=lambda: now[0])
    for more in seconds:
        now[0] += more
        watch.look({1: "a"})
    return watch, now


def test_a_sign_is_unchanged_since_it_was_first_seen() -> None:
    watch, _ = watched(1000, 30, 30)
    assert watch.unchanged_s(1, "a") == 60


def test_a_new_sign_begins_anew_and_an_unknown_one_was_never_watched() -> None:
    watch, now = watched(0, 30, 30)
    assert watch.unchanged_s(1, "b") == 0
    assert watch.unchanged_s(2, "a") == 0
    now[0] += 30
    watch.look({1: "b"})
    assert watch.unchanged_s(1, "a") == watch.unchanged_s(1, "b") == 0


def test_one_look_adds_no_more_than_its_bound() -> None:
    watch, _ = watched(0, 86_400)
    assert watch.unchanged_s(1, "a") == 60


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    watch, _ = watched(0, 30, -500, 30)
    assert watch.unchanged_s(1, "a") == 60


def test_who_is_not_named_any_more_is_forgotten() -> None:
    watch, now = watched(0, 30, 30)
    watch.look({})
    now[0] += 30
    watch.look({1: "a"})
    assert watch.unchanged_s(1, "a") == 0
