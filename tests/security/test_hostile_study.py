"""A study's folder that somebody else made: looking at it runs none of it, leaves it only by no path, and shows text as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_study import trial, write_study
from typer.testing import CliRunner

from kltune.cli import app
from kltune.errors import KltuneError, StudyError
from kltune.metrics.jsonl import read_json
from kltune.report.build import build_report, draw_live
from kltune.spec.load import from_resolved
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec
from kltune.trial.folder import TrialFolder
from kltune.trial.record import read_trials

EVIL = "\x1b]0;owned\x07\x1b[2J<script>alert(1)</script><img src=x onerror=alert(2)>\u202e[a](javascript:x)"
"""A title for the terminal, a cleared screen, markup, a direction override, a link."""
LOOKS = (
    ["report"], ["report", "--json"], ["status"], ["status", "--json"], ["ls"], ["diagnose"],
    ["export", "trl"], ["export", "verl"],
)  # fmt: skip


def look(words: list[str], study: Path) -> str:
    name, *rest = words
    given = study.parent if name == "ls" else study
    done = CliRunner().invoke(app, [name, *rest, str(given)])
    assert done.exception is None or isinstance(done.exception, SystemExit | KltuneError), (
        words,
        done.exception,
    )
    return done.output + str(done.exception or "")


def study_of(folder: Path) -> Path:
    return write_study(folder / "study", [trial(0.0), trial(0.1), trial(0.3)])


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    change(found)
    path.write_text(json.dumps(found), encoding="utf-8")


def test_looking_at_a_study_runs_no_code_that_it_names(tmp_path: Path) -> None:
    study, marker = study_of(tmp_path), tmp_path / "ran"
    for name in ("evil.py", "sitecustomize.py", "conftest.py", "rewards.py"):
        (study / name).write_text(f"open({str(marker)!r}, 'w').close()\n", encoding="utf-8")
    task = {
        "prompts": str(study / "prompts.txt"),
        "gold": f"{study / 'evil.py'}:gold",
        "proxy": f"{study / 'rewards.py'}:proxy",
    }
    (study / "prompts.txt").write_text("a\nb\nc\nd\n" * 9, encoding="utf-8")
    edit(study / "resolved.json", lambda found: found.update(task=task))
    spec = {**json.loads((study / "resolved.json").read_text(encoding="utf-8"))}
    (study / "spec.yaml").write_text(json.dumps(spec), encoding="utf-8")
    for words in LOOKS:
        look(words, study)
    build_report(study)
    draw_live(study)
    read_trials(study)
    assert not marker.exists()


def test_text_from_a_study_is_text_on_every_page_and_terminal(tmp_path: Path) -> None:
    study = write_study(
        tmp_path / "study",
        [trial(0.0), trial(0.1, detail=EVIL, texts=[EVIL] * 4), trial(0.3, origin=EVIL)],
    )
    (study / "env.json").write_text(
        json.dumps({"schema": 1, "kltune": EVIL, "python": EVIL, "command": ["kltune", EVIL],
                    "packages": {EVIL: EVIL}, "device": {EVIL: EVIL}, "git": {"commit": EVIL}}),
        encoding="utf-8",
    )  # fmt: skip
    edit(study / "resolved.json", lambda found: found["model"].update(base=f"evil/{EVIL}"))
    said = "".join(look(words, study) for words in LOOKS)
    assert "\x1b" not in said
    assert "\x07" not in said
    build_report(study)
    for name in ("report.html", "report.md"):
        text = (study / name).read_text(encoding="utf-8")
        if name == "report.md":
            text = re.sub(r"(?m)^    .*$", "", text)  # code, which is shown as it stands
        assert "<script>alert(1)" not in text, name
        assert not re.search(r"<img[^>]*onerror", text), name
        assert not {"\x1b", "\x07", "\u202e"} & set(text), name
        assert not re.search(r"(?<!\\)\]\(javascript:", text) or name == "report.html", name
    assert "<script>alert(1)" not in draw_live(study).html


@pytest.mark.parametrize("name", ["../../x", "/etc", "..", "a/b", "", ".hidden", "a\x00b"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    study = study_of(tmp_path)
    edit(study / "resolved.json", lambda found: found.update(name=name))
    with pytest.raises(KltuneError, match="must be a folder name"):
        from_resolved(read_json(study / "resolved.json"))


@pytest.mark.parametrize("what", ["trials/00001", "trials"])
def test_trials_that_are_links_out_of_the_study_are_not_read(tmp_path: Path, what: str) -> None:
    study = study_of(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    (study / what).rename(elsewhere)
    (study / what).symlink_to(elsewhere)
    with pytest.raises(StudyError, match="leads out of the study's folder"):
        read_trials(study)


@pytest.mark.parametrize("what", ["", "checkpoints", "checkpoints/last", "checkpoints/best"])
def test_an_attempt_writes_through_no_link(tmp_path: Path, what: str) -> None:
    study, elsewhere = tmp_path / "study", tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = TrialFolder(study, 1, 1)
    place = folder.path / what
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(elsewhere)
    setting = TrialSpec.model_validate({"beta": 0.0, "learning_rate": 1e-3, "seed": 0})
    with pytest.raises(StudyError, match="leads out of the study's folder"):
        folder.write_config(setting, "sobol", None, KLUnit.TOKEN, BetaUnit.REWARD)
    assert list(elsewhere.iterdir()) == []


def test_a_study_that_is_a_link_as_a_whole_is_an_ordinary_one(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    (tmp_path / "link").symlink_to(study)
    assert len(read_trials(tmp_path / "link")) == 3
