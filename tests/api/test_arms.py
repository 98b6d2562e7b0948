"""``kltune.run_arms``: settings x seeds in, tables out; errors and interruptions are exceptions."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kltune
import kltune.api
from kltune.errors import SpecError, StudyError
from kltune.launch import arms_runs, signals
from kltune.study.repeat import repeat
from tests.arms_case import ARMS, SCALE, SPEC, Fakes, fakes, loaded_spec
from tests.fake_bank import FakeBank
from tests.small_search import stop_after

__all__ = ["fakes"]  # a fixture


def run(out: Path, **changes: Any) -> kltune.Arms:
    return kltune.run_arms(SPEC, **{"arms": ARMS, "seeds": [3, 4], "out": out, **changes})


def test_the_tables_hold_every_evaluation_and_step(tmp_path: Path, fakes: Fakes) -> None:
    found = run(tmp_path / "out")
    assert isinstance(found, kltune.Arms)
    assert (found.path, len(found.runs)) == (tmp_path / "out", 4)
    evals, steps, ends = found.evals, found.steps, found.ends
    assert list(evals.columns[:3]) == ["arm", "seed", "step"]
    assert evals.groupby(["arm", "seed"])["step"].agg(list).tolist() == [[0, 5, 10, 12]] * 4
    assert steps.groupby(["arm", "seed"])["step"].agg(list).tolist() == [list(range(1, 13))] * 4
    assert set(evals["arm"]) == {"no KL", "some"}
    assert evals["eval/gold"].dtype == float
    assert evals.attrs["units"]["eval/kl_seq"] == "nats/sequence"
    assert steps.attrs["units"]["kl/exact_token"] == "nats/token"
    assert not {"gold_by_prompt", "time", "schema", "attempt"} & set(evals.columns)
    assert ends.to_dict("records")[0] == {
        "arm": "no KL",
        "seed": 3,
        "reason": "done",
        "detail": "ran to its stop at step 12",
        "steps": 12,
    }
    assert found.facts["scale"]["sigma"] == SCALE.sigma
    assert found.facts["units"]["target_kl"] == "nats/token"


def test_a_path_a_mapping_and_overrides_are_a_spec_as_for_sweep(
    tmp_path: Path, fakes: Fakes
) -> None:
    found = run(tmp_path / "a", set={"trainer.steps": 6}, seeds=range(1))
    assert found.evals["step"].unique().tolist() == [0, 5, 6]
    assert found.facts["spec"]["trainer"]["steps"] == 6
    path = loaded_spec(tmp_path).path
    again = kltune.run_arms(
        path, arms=ARMS, seeds=(0,), out=str(tmp_path / "a"), set=["trainer.steps=6"]
    )
    assert len(again.runs) == 2
    assert len(fakes.loads) == 1


def test_one_seed_is_enough(tmp_path: Path, fakes: Fakes) -> None:
    found = run(tmp_path / "out", arms={"only": {"beta": 0.0}}, seeds=[7])
    assert found.ends[["arm", "seed"]].to_numpy().tolist() == [["only", 7]]


def test_seeds_may_be_drawn_and_of_numpy(tmp_path: Path, fakes: Fakes) -> None:
    found = run(tmp_path / "out", seeds=(np.int64(n) for n in range(2)))
    assert sorted(set(found.evals["seed"])) == [0, 1]
    assert found.facts["seeds"] == [0, 1]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seeds": 8}, r"^seeds: must be whole numbers in a list or range \(got 8\)"),
        ({"seeds": None}, r"^seeds: .*\(got None\)"),
        ({"seeds": "12"}, r"^seeds: .*\(got '12'\)"),
        ({"seeds": [1.0]}, r"^seeds: must be whole numbers \(got 1\.0\)"),
        ({"seeds": [1, 2.5]}, r"^seeds: must be whole numbers \(got 2\.5\)"),
        ({"seeds": ["1"]}, r"^seeds: must be whole numbers \(got '1'\)"),
        ({"seeds": [True]}, r"^seeds: must be whole numbers \(got True\)"),
        ({"seeds": []}, "seeds: at least one is needed"),
        ({"seeds": [1, 1]}, r"seeds: each may be there once \(got 1 again\)"),
        ({"seeds": [-1]}, r"seeds: must be from 0 .*\(got -1\)"),
        ({"arms": {}}, "arms: at least one is needed"),
        ({"arms": None}, "arms: must be a mapping"),
        ({"arms": {"a": 1}}, r"arms\['a'\]: must be a recipe's name or the fields"),
        ({"out": 3}, r"^out: must be a path \(got 3\)"),
        ({"set": 3}, "^set: must be KEY=VALUE texts"),
        ({"set": {"trainer.steps": 0}}, r"trainer\.steps"),
    ],
)
def test_a_bad_argument_is_one_message_and_nothing_starts(
    changes: dict[str, Any], told: str, tmp_path: Path, fakes: Fakes
) -> None:
    with pytest.raises(SpecError, match=told):
        kltune.run_arms(SPEC, **{"arms": ARMS, "seeds": [3], "out": tmp_path / "out", **changes})
    assert not (tmp_path / "out").exists()
    assert fakes.loads == []


@pytest.mark.parametrize("spec", [None, 3, ["a.yaml"]])
def test_what_is_no_spec_is_told(spec: Any, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"^spec: must be the path of a YAML file, or a mapping"):
        kltune.run_arms(spec, arms=ARMS, seeds=[0], out=tmp_path / "out")


def test_a_folder_of_another_spec_is_refused(tmp_path: Path, fakes: Fakes) -> None:
    run(tmp_path / "out")
    with pytest.raises(StudyError, match=r"trainer\.steps: 12 in the study, 9 now"):
        run(tmp_path / "out", set={"trainer.steps": 9})


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_interruptions_are_exceptions_and_the_same_call_goes_on(
    number: int, expected: type[BaseException], tmp_path: Path, fakes: Fakes
) -> None:
    def interrupt(run: int, step: int) -> None:
        if (run, step) == (1, 6):
            signal.raise_signal(number)

    fakes.bank = FakeBank(num_slots=1, on_step=interrupt)
    with pytest.raises(expected) as caught:
        run(tmp_path / "out")
    if isinstance(caught.value, SystemExit):
        assert caught.value.code == 75
    else:
        assert "same call goes on" in str(caught.value)
    # Only what has ended is shown.
    assert kltune.open_arms(tmp_path / "out").ends["reason"].tolist() == ["done"]
    fakes.bank = FakeBank(num_slots=1)
    assert run(tmp_path / "out").ends["reason"].tolist() == ["done"] * 4


def test_beside_the_main_thread_it_works(tmp_path: Path, fakes: Fakes) -> None:
    found: list[kltune.Arms] = []
    thread = threading.Thread(target=lambda: found.append(run(tmp_path / "out")))
    thread.start()
    thread.join()
    assert len(found[0].runs) == 4


def test_a_run_that_diverged_is_in_the_tables(tmp_path: Path, fakes: Fakes) -> None:
    fakes.bank.nan_at = {0: 7}
    found = run(tmp_path / "out")
    assert found.ends.loc[0, ["reason", "steps"]].tolist() == ["diverged", 7]
    own = found.steps.query("arm == 'no KL' and seed == 3")
    assert own["step"].tolist() == list(range(1, 8))
    assert own["kl/exact_seq"].isna().tolist() == [False] * 6 + [True]
    assert own["kl/exact_seq"].dtype == float
    assert "non_finite" not in found.steps.columns


def test_a_folder_without_ended_runs_has_empty_tables(tmp_path: Path, fakes: Fakes) -> None:
    def interrupt(run: int, step: int) -> None:
        signal.raise_signal(signal.SIGINT)

    fakes.bank = FakeBank(num_slots=1, on_step=interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out")
    found = kltune.open_arms(tmp_path / "out")
    assert found.runs == ()
    assert list(found.evals.columns) == ["arm", "seed", "step"]
    assert list(found.ends.columns) == ["arm", "seed", "reason", "detail", "steps"]
    assert len(found.evals) == len(found.steps) == len(found.ends) == 0


@pytest.mark.parametrize("name", ["absent", "file", "empty"])
def test_what_holds_no_runs_is_told(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(StudyError, match=r"holds no runs \(arms.json is absent\)"):
        kltune.open_arms(tmp_path / name)
    with pytest.raises(SpecError, match="path: must be a path"):
        kltune.open_arms(3)  # pyright: ignore[reportArgumentType]


def test_the_packages_example_names_what_is_there(
    tmp_path: Path, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = (kltune.api.__doc__ or "").split("```python\n")[2].split("```")[0]
    (tmp_path / "sweeps").symlink_to(Path(__file__).parents[2] / "sweeps")
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {"kltune": kltune}
    exec(example.replace("range(8)", "range(2)"), found)  # on the fake bank
    assert len(found["arms"].runs) == 6
    assert set(found["arms"].facts["arms"]) == {"none", "k2", "rloo"}


TINY: dict[str, Any] = {
    **SPEC,
    "trainer": {
        "steps": 4,
        "prompts": 2,
        "group_size": 4,
        "max_new_tokens": 12,
        "learning_rate": 1e-3,
    },
    "evaluate": {"every": 2, "prompts": 8},
}
CLOCKS = ["time/", "compute/", "memory/"]


def numbers(table: pd.DataFrame) -> pd.DataFrame:
    """What a repetition must give again to the last bit."""
    kept = [c for c in table.columns if not any(c.startswith(clock) for clock in CLOCKS)]
    return table[kept].sort_values(["arm", "seed", "step"], ignore_index=True)


@pytest.mark.slow
def test_trained_interrupted_and_gone_on_with_it_is_as_undisturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        arms = {"no KL": {"beta": 0.0}, "stiennon": "stiennon"}
        whole = kltune.run_arms(TINY, arms=arms, seeds=[0, 1], out=tmp_path / "whole")

        def stopped(bank: Any, runs: Any, where: Any, told: Any, _stop: Any) -> Any:
            asked = stop_after(11)  # in the second run, after 3 steps

            def stop() -> str | None:
                return None if asked() is None else signals.INTERRUPT

            return repeat(bank, runs, where, told, stop)

        with monkeypatch.context() as patched:
            patched.setattr(arms_runs, "repeat", stopped)
            with pytest.raises(KeyboardInterrupt):
                kltune.run_arms(TINY, arms=arms, seeds=[0, 1], out=tmp_path / "parts")
        assert len(kltune.open_arms(tmp_path / "parts").runs) == 1
        parts = kltune.run_arms(TINY, arms=arms, seeds=[0, 1], out=tmp_path / "parts")
    finally:
        torch.set_num_threads(before)
    assert parts.ends["reason"].tolist() == ["done"] * 4
    assert max(record.attempt for record in parts.runs) == 2
    pd.testing.assert_frame_equal(numbers(parts.evals), numbers(whole.evals), check_exact=True)
    pd.testing.assert_frame_equal(numbers(parts.steps), numbers(whole.steps), check_exact=True)
    assert whole.evals.groupby(["arm", "seed"])["step"].agg(list).tolist() == [[0, 2, 4]] * 4
    # Runs of one seed share prompts and numbers: before a step they are the same.
    start = whole.evals.query("step == 0").groupby("seed")["eval/gold"].nunique()
    assert start.tolist() == [1, 1]
