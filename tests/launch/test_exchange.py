"""Two members of a study whose folders have nothing in common but an address."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kltune.errors import SpecError
from kltune.launch.exchange import bring_set_up, exchanged, send_set_up
from kltune.metrics.jsonl import write_json
from kltune.study.ledger import Ledger
from kltune.study.loop import run_search
from kltune.study.space import fixed_trials
from kltune.study.storage import open_study
from kltune.trial.record import read_trials
from kltune.trial.remote import RemoteTroubleError
from tests.fake_bank import FakeBank, small_spec
from tests.small_search import SCALE, stop_after


def spec_of(tmp_path: Path):
    return small_spec(
        budget={"trials": 3},
        storage={"record": f"file://{tmp_path}/far"},
        evaluate={"every": 5, "prompts": 16},
    )


def run(tmp_path: Path, study: Path, bank: FakeBank, **how) -> None:
    """A session in a folder; the database travels, as a server would be reached by all."""
    study.mkdir(exist_ok=True)
    spec = spec_of(tmp_path)
    opened = open_study(study, spec)
    try:
        stop = how.get("should_stop", lambda: None)
        with exchanged(opened, stop) as (known, senders):
            run_search(bank, Ledger(known, fixed_trials(spec, SCALE)), SCALE.sigma, senders, **how)
    finally:
        opened.close()


def test_a_trial_goes_on_in_another_folder_and_all_are_there_for_the_report(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    run(tmp_path, one, FakeBank(1), should_stop=stop_after(32))  # in the second trial
    begun = {r.number: len(r.steps) for r in read_trials(one)}
    assert begun[0] == 20
    assert 0 < begun[1] < 20
    two.mkdir()
    (two / "study.db").write_bytes((one / "study.db").read_bytes())
    bank = FakeBank(1)
    run(tmp_path, two, bank)
    assert bank.steps_done[1] == 20 - begun[1]  # from the checkpoint that the first one sent
    for record in read_trials(two):
        assert [row["step"] for row in record.steps] == list(range(1, 21))
    assert [r.number for r in read_trials(two)] == [0, 1, 2]
    assert not list((two / "trials").glob("*/checkpoints/last"))


def test_a_stop_while_a_trial_is_waited_for_is_heeded_and_loses_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    run(tmp_path, one, FakeBank(1), should_stop=stop_after(32))  # in the second trial
    begun = len(read_trials(one)[1].steps)
    two.mkdir()
    (two / "study.db").write_bytes((one / "study.db").read_bytes())
    asked_at = list[float]()

    def away(*_: object) -> None:
        asked_at.append(time.monotonic())
        raise RemoteTroubleError("no answer")

    def stop() -> str | None:
        return "terminated" if asked_at and time.monotonic() > asked_at[0] + 0.3 else None

    with monkeypatch.context() as patch:
        patch.setattr("kltune.trial.exchange.versions_of", away)
        patch.setattr("kltune.trial.exchange.Exchange.bring_all", lambda *_, **__: [])
        run(tmp_path, two, FakeBank(1), should_stop=stop)
    assert time.monotonic() - asked_at[0] < 20  # and not a minute
    assert not (two / "trials" / "00001").exists()
    three.mkdir()
    (three / "study.db").write_bytes((two / "study.db").read_bytes())
    bank = FakeBank(1)
    run(tmp_path, three, bank)
    assert bank.steps_done[1] == 20 - begun


def test_without_an_address_nothing_is_sent(tmp_path: Path) -> None:
    opened = (
        open_study(tmp_path / "one", small_spec()) if (tmp_path / "one").mkdir() is None else None
    )
    assert opened is not None
    with exchanged(opened) as (known, senders):
        assert known is opened
        assert senders == []
    opened.close()
    send_set_up(small_spec(), tmp_path / "one")
    assert not bring_set_up(small_spec(), tmp_path / "one")


def test_what_the_first_member_measured_counts_for_all(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    for name, sigma in (("one", 0.5), ("two", 0.7)):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "reference.json", {"sigma_r": sigma})
        send_set_up(spec, tmp_path / name)
    (tmp_path / "three").mkdir()
    assert bring_set_up(spec, tmp_path / "three")
    assert '"sigma_r": 0.5' in (tmp_path / "three" / "reference.json").read_text()
    assert not bring_set_up(spec, tmp_path / "two")
    assert '"sigma_r": 0.7' in (tmp_path / "two" / "reference.json").read_text()
    assert [p.name for p in (tmp_path / "three").iterdir()] == ["reference.json"]


def test_a_secret_in_the_address_is_refused_with_the_spec() -> None:
    for address in ("s3://key:hidden@bucket/x", "bucket/x"):
        with pytest.raises((SpecError, ValueError)) as caught:
            small_spec(storage={"record": address})
        assert "hidden" not in str(caught.value).replace("input_value='s3://key:hidden", "")
