"""What a member that is stopped while it saves may do to the checkpoint of whoever took its trial over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from kltune.metrics.jsonl import write_json
from kltune.study.crew import join
from kltune.study.ledger import Ledger
from kltune.study.loop import run_search
from kltune.study.search_end import SearchEnd
from kltune.study.staging import staged
from kltune.study.storage import open_study
from kltune.study.takeover import end_dead
from kltune.trial.disk import disk_error
from kltune.trial.folder import TrialFolder
from tests.fake_bank import FakeBank, small_spec


class StoppedBank(FakeBank):
    """Is stopped in the middle of its first save of ``what``: ``meanwhile`` happens."""

    def __init__(self, what: str, meanwhile: Callable[[], None], *, is_before: bool) -> None:
        super().__init__(1)
        self._what, self._meanwhile, self._is_before = what, meanwhile, is_before

    def save_checkpoint(self, slot: int, folder: Path) -> None:
        self._save("last", lambda: super(StoppedBank, self).save_checkpoint(slot, folder))

    def save_adapter(self, slot: int, folder: Path) -> None:
        self._save("best", lambda: super(StoppedBank, self).save_adapter(slot, folder))

    def _save(self, what: str, save: Callable[[], None]) -> None:
        is_now, self._what = self._what == what, self._what if self._what != what else ""
        if is_now and self._is_before:
            self._meanwhile()
        save()
        if is_now and not self._is_before:
            self._meanwhile()


@dataclass
class Pair:
    """A member that is about to work, and one that takes its trial for dead."""

    folder: Path
    first: Ledger
    other: Ledger

    def take_over(self) -> None:
        opened = self.other.opened
        trials = opened.optuna_study.get_trials(deepcopy=False)
        assert opened.decide(lambda: end_dead(opened, trials, trials, is_lone=False)) == 1
        asked = self.other.ask()
        assert asked is not None
        assert asked.attempt == 2
        TrialFolder(self.folder, asked.trial_number, 2).tidy()

    def run(self, bank: FakeBank) -> SearchEnd:
        """Until the first trial is lost."""
        return run_search(bank, self.first, should_stop=self._reason)

    def _reason(self) -> str | None:
        trials = self.first.opened.optuna_study.get_trials(deepcopy=False)
        return "enough" if len(trials) > 1 else None


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    spec = small_spec(budget={"trials": 1})
    with ExitStack() as held:
        ledgers: list[Ledger] = []
        for _ in range(2):
            member = held.enter_context(join(tmp_path, "worker"))
            opened = open_study(tmp_path, spec)
            held.callback(opened.close)
            ledgers.append(Ledger(opened, (), member))
        yield Pair(tmp_path, *ledgers)


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("what", ["last", "best"])
def test_a_member_stopped_while_it_saves_writes_nothing_over_a_later_attempt(
    pair: Pair, what: str, is_before: bool
) -> None:
    newer = pair.folder / f"trials/00000/checkpoints/{what}/newer.json"

    def take_over() -> None:
        pair.take_over()
        newer.parent.mkdir(parents=True, exist_ok=True)
        write_json(newer, {"schema": 1})

    end = pair.run(StoppedBank(what, take_over, is_before=is_before))
    assert end.trials_ended == 0
    assert newer.exists()
    assert [path.name for path in newer.parent.iterdir()] == ["newer.json"]
    assert not list(newer.parent.parent.glob("*.new"))


def test_a_save_under_which_the_trial_was_taken_over_ends_no_search(pair: Pair) -> None:
    def take_over() -> None:
        pair.take_over()
        raise disk_error(pair.folder, FileNotFoundError(2, "No such file"))

    assert pair.run(StoppedBank("last", take_over, is_before=True)).reason == "enough"


def test_what_is_staged_is_tidied_up_and_told_apart_by_attempt(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path, 0, 2)
    for attempt in (1, 2):
        staged(folder.last_checkpoint, attempt).mkdir(parents=True)
    assert len(list(folder.last_checkpoint.parent.iterdir())) == 2
    folder.tidy()
    assert not list(folder.last_checkpoint.parent.iterdir())
