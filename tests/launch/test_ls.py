from __future__ import annotations

import json
from pathlib import Path

import pytest

from kltune.errors import ExitCode, SpecError
from kltune.launch.ls import LsRequest, age_short, find_studies, run_ls
from tests.standing_case import write_study, write_trial


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def test_studies_are_found_two_levels_deep_and_nothing_odd_is_followed(here: Path) -> None:
    for name in ("studies/b", "studies/a", "studies/group/c", "studies/x/y/too-deep"):
        write_study(Path(name))
    write_study(Path("studies/a/confirm/inner"))
    write_study(Path("outside/d"))
    write_study(Path("studies/.hidden"))
    Path("studies/link").symlink_to(here / "outside", target_is_directory=True)
    Path("studies/loop").symlink_to(here / "studies", target_is_directory=True)
    Path("studies/README.md").write_text("", encoding="utf-8")
    found = [path.as_posix() for path in find_studies(Path("studies"))]
    assert found == ["studies/a", "studies/b", "studies/group/c"]
    assert list(find_studies(Path("studies/a"))) == [Path("studies/a")]


def test_one_line_a_study(capsys: pytest.CaptureFixture[str]) -> None:
    write_trial(write_study(Path("studies/one")), 0, ending={}, last=1e9)
    write_study(Path("studies/two"))
    assert run_ls(LsRequest()) == ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()
    one, two = (next(line for line in lines if f"studies/{n}" in line) for n in ("one", "two"))
    assert one.split()[1:6] == ["stopped", "1/4", "0.500", "0.2/token", one.split()[5]]
    assert " d " in one
    assert "not started" in two
    assert "0/4" in two


def test_a_broken_study_is_a_line_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    write_study(Path("studies/good"))
    for name, text in (("cut", "{"), ("list", "[]"), ("new", '{"schema": 99}')):
        Path(f"studies/{name}").mkdir()
        Path(f"studies/{name}/resolved.json").write_text(text, encoding="utf-8")
    Path("studies/gone/trials").mkdir(parents=True)
    assert run_ls(LsRequest()) == ExitCode.DONE
    text = capsys.readouterr().out
    assert text.count("broken") == 4
    assert "studies/good" in text
    assert run_ls(LsRequest(as_json=True)) == ExitCode.DONE
    rows = json.loads(capsys.readouterr().out)["studies"]
    assert {row["study"] for row in rows if row["state"] == "broken"} == {
        f"studies/{name}" for name in ("cut", "list", "new", "gone")
    }


def test_nothing_found_says_where_it_looked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_ls(LsRequest()) == ExitCode.DONE
    said = capsys.readouterr()
    assert (said.out, "no study in studies" in said.err) == ("", True)
    assert run_ls(LsRequest(as_json=True)) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out)["studies"] == []


def test_a_folder_that_is_not_there_is_refused(here: Path) -> None:
    with pytest.raises(SpecError, match="no such folder: absent"):
        run_ls(LsRequest((here, Path("absent"))))


def test_a_study_that_is_named_twice_is_listed_once(capsys: pytest.CaptureFixture[str]) -> None:
    write_study(Path("studies/one"))
    run_ls(LsRequest((Path("studies"), Path("studies/one")), as_json=True))
    assert len(json.loads(capsys.readouterr().out)["studies"]) == 1


def test_ages_are_in_their_largest_unit() -> None:
    ages = [age_short(s) for s in (-3, 12, 61, 7200, 200_000)]
    assert ages == ["0 s", "12 s", "1 min", "2 h", "2 d"]
