"""Idle threads sleep early, unless the user's environment decides."""

from __future__ import annotations

import os

import pytest

from kltune.launch.threads import SPIN_COUNT, share_cores


def test_the_spin_count_is_set_where_nobody_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    share_cores()

    assert os.environ["GOMP_SPINCOUNT"] == SPIN_COUNT


@pytest.mark.parametrize("name", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY"])
def test_the_users_environment_wins(monkeypatch: pytest.MonkeyPatch, name: str) -> None:

    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setenv(name, "ACTIVE")
    share_cores()
    assert os.environ[name] == "ACTIVE"
    assert (os.environ.get("GOMP_SPINCOUNT") == SPIN_COUNT) is False
