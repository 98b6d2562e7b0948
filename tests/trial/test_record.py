from __future__ import annotations

from pathlib import Path

import pytest

from kltune.errors import StudyError
from kltune.metrics.jsonl import Damage
from kltune.metrics.record import EvalMetrics, EvalSample, StepMetrics, TokenProfile
from kltune.spec.penalty import Penalty
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec
from kltune.trial.folder import TrialFolder, as_recorded
from kltune.trial.outcome import StopReason, TrialOutcome, Verdict
from kltune.trial.record import (
    ScoreErrors,
    Warned,
    each_trial,
    read_profiles,
    read_samples,
    read_trial,
    read_trials,
)

_SETTING = TrialSpec(beta=0.1, penalty=Penalty.K2_LOSS, learning_rate=1e-3)


def _attempt(
    study: Path, number: int, attempt: int, steps: range, proxy: float = 0.0
) -> TrialFolder:
    folder = TrialFolder(study, number, attempt)
    folder.write_config(_SETTING, "sobol", 0.5, KLUnit.TOKEN, BetaUnit.REWARD)
    folder.append_event("started" if attempt == 1 else "resumed", steps.start)
    for step in steps[1:]:
        folder.append_step(
            StepMetrics(0, number, step, 0.0, 0.0, proxy, 0.1, 9, is_finite=True, values={})
        )
    sample = EvalSample("p", "Q", f"attempt {attempt}", 0.0, 0.0, 0.0, 1, ended=True)
    folder.append_eval(
        EvalMetrics(0, number, steps[-1], proxy, 0, 0, 0, 0, 0, (0.0,), (0.0,), {}, (sample,))
    )
    return folder


def _outcome(number: int, attempt: int, reason: StopReason = StopReason.DONE) -> TrialOutcome:
    return TrialOutcome(number, attempt, Verdict(reason, "all 9 steps"), 9, 0.5, True, -1.0, 5)


def test_a_trial_comes_back_as_it_was_written(tmp_path: Path) -> None:
    folder = _attempt(tmp_path, 3, 1, range(6))
    folder.append_outcome(_outcome(3, 1))
    record = read_trial(folder.path)
    assert (record.number, record.attempt, record.origin) == (3, 1, "sobol")
    assert record.setting == _SETTING
    assert record.sigma_r == 0.5
    assert [row["step"] for row in record.steps] == [1, 2, 3, 4, 5]
    assert record.outcome == _outcome(3, 1)
    assert record.folder == folder.path


def test_a_resumed_trial_is_one_curve_without_overtaken_steps(tmp_path: Path) -> None:
    _attempt(tmp_path, 3, 1, range(8), proxy=1.0)
    folder = _attempt(tmp_path, 3, 2, range(5, 7), proxy=2.0)
    record = read_trial(folder.path)
    assert [row["step"] for row in record.steps] == [1, 2, 3, 4, 5, 6]
    assert [row["train/proxy_mean"] for row in record.steps] == [1, 1, 1, 1, 1, 2]
    assert [row["step"] for row in record.evals] == [6]


def test_a_trial_that_runs_again_has_no_outcome_yet(tmp_path: Path) -> None:
    _attempt(tmp_path, 3, 1, range(5)).append_outcome(_outcome(3, 1, StopReason.INTERRUPTED))
    folder = _attempt(tmp_path, 3, 2, range(4, 6))
    assert read_trial(folder.path).outcome is None
    folder.append_outcome(_outcome(3, 2))
    assert read_trial(folder.path).outcome == _outcome(3, 2)


def test_trials_come_by_number_and_a_folder_without_config_is_none(tmp_path: Path) -> None:
    for number in (11, 2):
        _attempt(tmp_path, number, 1, range(3))
    (tmp_path / "trials" / "00005").mkdir()
    assert [record.number for record in read_trials(tmp_path)] == [2, 11]
    assert read_trials(tmp_path / "nothing") == []


def test_each_trial_is_read_when_its_turn_comes(tmp_path: Path) -> None:
    for number in (1, 2):
        _attempt(tmp_path, number, 1, range(3))
    (tmp_path / "trials" / "00002" / "config.json").write_text("{}")
    records = each_trial(tmp_path)
    assert next(records).number == 1
    with pytest.raises(StudyError, match="not a trial's config"):
        next(records)


def test_samples_are_those_of_the_latest_attempt_at_the_step(tmp_path: Path) -> None:
    _attempt(tmp_path, 3, 1, range(6))
    folder = _attempt(tmp_path, 3, 2, range(3, 6))
    assert [row["completion"] for row in read_samples(folder.path, 5)] == ["attempt 2"]
    assert read_samples(folder.path, 4) == []


def test_a_folder_that_is_no_trial_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"config\.json is absent"):
        read_trial(tmp_path)
    (tmp_path / "config.json").write_text('{"schema": 1, "trial": 3}')
    with pytest.raises(StudyError, match="not a trial's config"):
        read_trial(tmp_path)


def test_warnings_come_back_once_and_without_those_that_were_overtaken(tmp_path: Path) -> None:
    first = _attempt(tmp_path, 3, 1, range(8))
    first.append_warning("repetition", "a third repeats", 2, 4)
    first.append_warning("truncation", "60 % cut", 5, 6)
    again = _attempt(tmp_path, 3, 2, range(5, 8))
    again.append_warning("repetition", "half repeats", 2, 6)
    record = read_trial(again.path)
    assert record.warnings == (Warned("repetition", "a third repeats", first_step=2, step=4),)


def test_profiles_come_back_as_they_are_recorded_the_later_attempts_where_both_have_one(
    tmp_path: Path,
) -> None:
    measured = TokenProfile((0, 1, 3), (0.123456, 2 / 3), (4, 7))
    for attempt, steps in ((1, (1, 2, 3)), (2, (2,))):
        folder = TrialFolder(tmp_path, 0, attempt)
        folder.write_config(_SETTING, "sobol", 0.5, KLUnit.TOKEN, BetaUnit.REWARD)
        folder.append_event("started" if attempt == 1 else "resumed", steps[0] - 1)
        for step in steps:
            kl = tuple(value * attempt for value in measured.kl)
            profile = TokenProfile(measured.edges, kl, measured.tokens)
            folder.append_step(
                StepMetrics(0, 0, step, 0.0, 0.0, 0.0, 0.1, 9, True, values={}, profile=profile)
            )
    record = read_trial(folder.path)
    found = read_profiles(folder.path, record.events)
    assert sorted(found) == [1, 2]
    assert found[1] == as_recorded(measured)
    assert found[1].kl == (0.1235, 0.6667)
    assert found[2].kl == (0.2469, 1.333)


def test_a_trial_without_profiles_has_none(tmp_path: Path) -> None:
    assert read_profiles(_attempt(tmp_path, 3, 1, range(4)).path, []) == {}


def test_completions_that_the_proxy_failed_on_are_counted_and_a_few_shown(tmp_path: Path) -> None:
    folder = _attempt(tmp_path, 0, 1, range(1))
    assert read_trial(folder.path).score_errors is None
    for step in (1, 2):
        folder.append_step(
            StepMetrics(
                slot=0,
                trial_number=0,
                step=step,
                kl_token=0.0,
                kl_seq=0.0,
                proxy=0.0,
                beta=0.1,
                tokens=1,
                is_finite=True,
                values={"train/part_short": 1.0, "train/score_errors": 4.0},
                score_errors=tuple(f"prompt 'p{i}': no" for i in range(4)),
            )
        )
    found = read_trial(folder.path).score_errors
    assert found == ScoreErrors(8, 2, ("prompt 'p0': no", "prompt 'p1': no", "prompt 'p2': no"))


def test_completions_of_an_evaluation_that_the_proxy_failed_on_are_counted_apart(
    tmp_path: Path,
) -> None:
    folder = _attempt(tmp_path, 0, 1, range(1))
    folder.append_event("score_errors", 0, count=2, examples=["prompt 'a': no"])  # an older record
    errors = ("prompt 'b': no", "prompt 'c': no", "prompt 'd': no")
    folder.append_eval(
        EvalMetrics(
            slot=0,
            trial_number=0,
            step=1,
            gold=0.0,
            gold_se=0.0,
            proxy=0.0,
            proxy_se=0.0,
            kl_token=0.0,
            kl_seq=0.0,
            gold_by_prompt=(0.0,),
            proxy_by_prompt=(0.0,),
            values={"eval/score_errors": 3.0},
            samples=(),
            score_errors=errors,
        )
    )
    found = read_trial(folder.path).score_errors
    assert found == ScoreErrors(2, 1, ("prompt 'a': no", "prompt 'b': no", "prompt 'c': no"), 3)


def test_an_ending_of_a_newer_kltune_is_one_line_that_names_file_and_line(tmp_path: Path) -> None:
    folder = _attempt(tmp_path, 3, 1, range(6))
    folder.append_outcome(_outcome(3, 1))
    path = folder.path / "events.jsonl"
    path.write_text(path.read_text().replace('"done"', '"grokked"'))
    with pytest.raises(StudyError) as raised:
        read_trial(folder.path)
    assert f"{path}, line 2: the trial ended by 'grokked'" in str(raised.value)
    assert "newer kltune" in str(raised.value)


def test_an_ending_or_a_row_without_its_fields_is_no_traceback(tmp_path: Path) -> None:
    folder = _attempt(tmp_path, 3, 1, range(6))
    folder.append_outcome(_outcome(3, 1))
    path = folder.path / "events.jsonl"
    path.write_text(path.read_text().replace('"best_step"', '"best"'))
    with pytest.raises(StudyError, match=r"line 2: not the end of a trial .*best_step"):
        read_trial(folder.path)
    (folder.path / "metrics.jsonl").write_text('{"schema": 1, "step": 1}\n')
    with pytest.raises(StudyError, match="a row is not one of a trial's record"):
        read_trial(folder.path)


def test_lines_that_cannot_be_read_are_named_by_file_and_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = _attempt(tmp_path, 3, 1, range(6))
    path = folder.path / "metrics.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:20], *lines[2:], '{"schema": 1, "st']))
    record = read_trial(folder.path)
    assert record.damage == (Damage(path, 2, is_cut=False), Damage(path, 6, is_cut=True))
    assert [row["step"] for row in record.steps] == [1, 3, 4, 5]
    assert "line 2" in caplog.text
