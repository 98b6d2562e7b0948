from __future__ import annotations

import io
import json
import logging
import shutil
from pathlib import Path

import pytest
from fake_bank import FakeBank, small_spec
from fake_study import FakeTrial, trial, typical_trials, write_study

from kltune.metrics.jsonl import read_json, write_json
from kltune.metrics.record import RewardScale
from kltune.report.build import build_report, compose_report, draw_live, is_over, render_live
from kltune.report.rows import read_study
from kltune.screen.progress import Scope
from kltune.screen.watch import PlainScreen
from kltune.spec.load import resolved
from kltune.study.ledger import Ledger
from kltune.study.loop import run_search
from kltune.study.space import fixed_trials
from kltune.study.storage import open_study
from kltune.trial.outcome import StopReason

SCALE = RewardScale(sigma=0.5, std=0.5, mean=0.0, num_groups=8, mean_tokens=20.0)
HOSTILE = ("<script>alert(1)</script>", "</script> | `x` \" ' 🥚 \u202e عشر", "w" * 10_240)

CASES: dict[str, list[FakeTrial]] = {
    "no trial": [],
    "one trial": [trial(0.1)],
    "two equal trials": [trial(0.1, value=0.5), trial(0.1, value=0.5)],
    "all running": [trial(0.1, steps=0, reason=None), trial(0.0, steps=33, reason=None)],
    "all failed": [trial(0.1, steps=3, reason=StopReason.ERROR, detail="boom")] * 2,
    "all pruned": [trial(0.1, steps=40, reason=StopReason.PRUNED, detail="beaten")] * 2,
    "diverged": [trial(0.1, steps=12, reason=StopReason.DIVERGED, detail="3 non-finite tokens")],
    "interrupted": [trial(0.1, steps=40, reason=StopReason.INTERRUPTED, detail="SIGTERM")],
    "beta = 0 alone": [trial(0.0, origin="zero")],
}


@pytest.mark.parametrize("case", CASES)
def test_every_state_of_a_study_has_a_report(case: str, tmp_path: Path) -> None:
    paths = build_report(write_study(tmp_path, CASES[case]))
    page = paths.html.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert paths.markdown.read_text(encoding="utf-8").startswith("# kltune: kitchen")
    data = json.loads(paths.json.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert len(data["trials"]) == len(CASES[case])
    assert "not available" in page


def test_no_feasible_trial_has_a_report_that_says_what_to_change(tmp_path: Path) -> None:
    paths = build_report(write_study(tmp_path, [trial(0.0)], objective={"kl_limit": 1e-3}))
    assert "No feasible trial" in paths.html.read_text(encoding="utf-8")
    assert "Move the range of search.beta up" in paths.html.read_text(encoding="utf-8")


def test_model_text_is_escaped_in_all_three_twins(tmp_path: Path) -> None:
    folder = write_study(tmp_path, [trial(0.0, texts=HOSTILE), trial(0.3, texts=HOSTILE)])
    paths = build_report(folder)
    for path in (paths.html, paths.markdown):
        text = path.read_text(encoding="utf-8")
        assert "<script>alert" not in text  # the page has scripts of its own
        assert "alert(1)</script" not in text
        assert "alert(1)" in text
    json.loads(paths.json.read_text(encoding="utf-8"))


def test_a_copied_study_gives_the_same_report(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "a", typical_trials()[:4])
    before = build_report(folder).html.read_text(encoding="utf-8")
    moved = tmp_path / "elsewhere" / "a"  # its name is in the commands to type
    shutil.copytree(folder, moved)
    shutil.rmtree(folder)
    after = build_report(moved).html.read_text(encoding="utf-8")
    assert after == before
    assert str(tmp_path) not in after


def test_a_line_cut_short_by_a_crash_does_not_stop_the_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_study(tmp_path, [trial(0.1)])
    path = folder / "trials/00000/metrics.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write('{"schema": 1, "trial": 0, "st')
    with caplog.at_level(logging.WARNING):
        build_report(folder)
    assert "metrics.jsonl" in caplog.text


def test_half_an_emoji_in_any_text_is_shown_as_an_escape_in_all_three_files(tmp_path: Path) -> None:
    half = "half \ud83d emoji"
    failed = trial(0.2, steps=3, reason=StopReason.ERROR, detail=half)
    folder = write_study(tmp_path, [trial(0.1), failed])
    write_json(folder / "env.json", {**read_json(folder / "env.json"), "device": half})
    paths = build_report(folder)
    for path in (paths.html, paths.markdown, paths.json):
        assert "ud83d emoji" in path.read_text(encoding="utf-8")


def test_a_rebuilt_report_replaces_the_old_one_and_leaves_nothing_else(tmp_path: Path) -> None:
    folder = write_study(tmp_path, [trial(0.1)])
    build_report(folder)
    before = sorted(path.name for path in folder.iterdir())
    build_report(folder)
    assert sorted(path.name for path in folder.iterdir()) == before


def test_the_record_of_a_real_search_has_importance_in_its_report(tmp_path: Path) -> None:
    spec = small_spec(budget={"trials": 12})
    screen = PlainScreen(
        Scope(spec.name, 12, spec.trainer.steps, spec.kl_unit, spec.beta_unit), io.StringIO()
    )
    ledger = Ledger(open_study(tmp_path, spec), fixed_trials(spec, SCALE))
    write_json(tmp_path / "resolved.json", resolved(spec))
    run_search(FakeBank(), ledger, SCALE.sigma, observers=[screen])
    paths = build_report(tmp_path)
    data = json.loads(paths.json.read_text(encoding="utf-8"))
    assert screen.progress.num_ended == 12
    assert data["best"]["state"] == "complete"
    assert data["importance"]["num_trials"] == 12
    used = data["importance"]["num_used"]
    assert f"{used} of 12 trials used" in paths.html.read_text(encoding="utf-8")


def test_a_complete_trial_whose_evaluations_are_gone_is_not_recommended(tmp_path: Path) -> None:
    study = write_study(tmp_path, [trial(0.1)])
    (study / "trials" / "00000" / "evals.jsonl").unlink()
    build_report(study)
    assert read_json(study / "report.json")["best"] is None


def test_a_page_to_serve_is_drawn_without_writing_in_the_study(tmp_path: Path) -> None:
    folder = write_study(tmp_path, [trial(0.1)])
    before = sorted(path.name for path in folder.iterdir())
    document = compose_report(folder, is_live=True)
    assert document.is_live
    assert not compose_report(folder).is_live
    page = draw_live(folder)
    assert page.html == render_live(folder)
    assert page.html.startswith("<!doctype html>")
    assert not page.is_over
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_study_is_over_when_as_many_have_ended_as_were_asked_for(tmp_path: Path) -> None:
    ended, running = trial(0.1), trial(0.2, steps=33, reason=None)
    failed = trial(0.1, steps=3, reason=StopReason.ERROR, detail="boom")
    for name, trials, wanted in (
        ("all", [ended] * 4, True),
        ("one to come", [ended] * 3, False),
        ("one runs", [*[ended] * 4, running], False),
        ("one failed, which does not count", [*[ended] * 3, failed], False),
    ):
        folder = write_study(tmp_path / name, trials, budget={"trials": 4})
        assert is_over(read_study(folder)) == wanted, name
