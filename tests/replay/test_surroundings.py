from __future__ import annotations

from kltune.replay.surroundings import changed_surroundings

ENV = {
    "schema": 1,
    "kltune": "0.1.0",
    "cpus": 2,
    "memory_gib": 8.0,
    "packages": {"torch": "2.13.0", "mlflow": "3.1"},
    "git": {"commit": "0123456789abcdef", "dirty": False},
    "device": {"device": "cpu", "threads": "2"},
}


def test_the_same_machine_has_no_changes() -> None:
    assert changed_surroundings(ENV, ENV) == ()


def test_what_can_move_a_bit_is_named_with_both_values() -> None:
    now = {
        **ENV,
        "cpus": 64,
        "packages": {"torch": "2.14.0", "mlflow": "4.0"},
        "device": {"device": "cuda", "threads": "1"},
        "git": {"commit": "fedcba9876543210", "dirty": True},
        "memory_gib": 99.0,
    }
    assert changed_surroundings(ENV, now) == (
        "cpus: 2 in the record, 64 now",
        "torch: 2.13.0 in the record, 2.14.0 now",
        "device: cpu in the record, cuda now",
        "git commit: 0123456789 in the record, fedcba9876 now",
        "git: files differed from the commit, then or now",
    )


def test_what_an_old_record_does_not_say_is_left_out() -> None:
    assert changed_surroundings({}, ENV) == ()
    assert changed_surroundings({"device": "cpu", "packages": {}, "git": None}, ENV) == ()
