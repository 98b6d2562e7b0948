from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from kltune.errors import RunError, SpecError
from kltune.launch.write_ranges import open_spec_file
from kltune.spec.load import load_spec

TEXT = """\
# Why this study: to see.
name: small
task: kitchen
model: {base: "builtin:kitchen"}   # small
trainer: {steps: 20, prompts: 2, group_size: 4, learning_rate: 1e-3}
search:
  beta: {log: [1e-3, 1], zero: true}  # reward per nat
  controller: {choice: [fixed, proportional]}
  target_kl:                         # nats per token
    log: [0.01, 0.1]
    when: {controller: proportional}
  horizon: {log: [64, 640], when: {controller: proportional}}

budget: {trials: 4}   # few
"""


def write(folder: Path, text: str = TEXT) -> Path:
    path = folder / "small.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def _squeezed(text: str) -> str:
    """Comments stay in their column, so the room before them changes with the numbers."""
    return re.sub(" +#", " #", text)


def test_only_the_numbers_of_the_ranges_change(tmp_path: Path) -> None:
    path = write(tmp_path)
    lines = open_spec_file(load_spec(path)).write((0.05, 2.0), (0.02, 0.4))
    after = TEXT.replace("{log: [1e-3, 1], zero", "{log: [0.05, 2.0], zero").replace(
        "log: [0.01, 0.1]", "log: [0.02, 0.4]"
    )
    assert _squeezed(path.read_text(encoding="utf-8")) == _squeezed(after)
    assert lines[0] == "search.beta: log: [0.001, 1] is now [0.05, 2]"
    assert load_spec(path).spec.search.beta.log == (0.05, 2.0)


def test_the_old_file_is_kept_beside_it(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.chmod(0o640)
    lines = open_spec_file(load_spec(path)).write((0.05, 2.0), None)
    assert (tmp_path / "small.yaml.bak").read_text(encoding="utf-8") == TEXT
    assert str(tmp_path / "small.yaml.bak") in lines[-1]
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["small.yaml", "small.yaml.bak"]


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = write(tmp_path)
    file = open_spec_file(load_spec(path))
    path.write_text(TEXT + "# my note\n", encoding="utf-8")
    with pytest.raises(RunError, match="was changed while"):
        file.write((0.05, 2.0), None)
    assert path.read_text(encoding="utf-8").endswith("# my note\n")
    assert not (tmp_path / "small.yaml.bak").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_file_that_can_not_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.chmod(0o444)
    with pytest.raises(SpecError, match="--write"):
        open_spec_file(load_spec(path))


def test_ranges_that_make_the_spec_unsound_are_not_written(tmp_path: Path) -> None:
    path = write(tmp_path)
    with pytest.raises(RunError, match="would not be sound"):
        open_spec_file(load_spec(path)).write((2.0, 0.05), None)
    assert path.read_text(encoding="utf-8") == TEXT
    assert not (tmp_path / "small.yaml.bak").exists()


def test_what_the_spec_does_not_search_is_said_and_left(tmp_path: Path) -> None:
    text = "\n".join(
        line
        for line in TEXT.replace("beta: {log: [1e-3, 1], zero: true}", "beta: 0.1").splitlines()
        if not any(word in line for word in ("controller", "target", "horizon", "log: [0.01"))
    )
    path = write(tmp_path, text + "\n")
    lines = open_spec_file(load_spec(path)).write((0.05, 2.0), (0.02, 0.4))
    assert lines == [
        "search.beta: is a constant or a choice in this spec, so nothing is written",
        "search.target_kl: is not searched by this spec, so nothing is written",
        f"{path} is left as it was",
    ]
    assert path.read_text(encoding="utf-8") == text + "\n"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    path = write(tmp_path)
    link = tmp_path / "link.yaml"
    link.symlink_to(path)
    open_spec_file(load_spec(link)).write((0.05, 2.0), None)
    assert link.is_symlink()
    assert load_spec(path).spec.search.beta.log == (0.05, 2.0)


def test_an_end_that_stays_keeps_the_way_it_was_written(tmp_path: Path) -> None:
    path = write(tmp_path)
    lines = open_spec_file(load_spec(path)).write((None, 0.8), (0.02, None))
    assert lines[:2] == [
        "search.beta: log: [0.001, 1] is now [0.001, 0.8]",
        "search.target_kl: log: [0.01, 0.1] is now [0.02, 0.1]",
    ]
    assert "log: [1e-3, 0.8]" in path.read_text(encoding="utf-8")


def test_ranges_that_are_the_specs_own_leave_the_file_alone(tmp_path: Path) -> None:
    path = write(tmp_path)
    lines = open_spec_file(load_spec(path)).write((1e-3, 1.0), (None, 0.1))
    assert lines == [
        "search.beta: log: [0.001, 1] stays",
        "search.target_kl: log: [0.01, 0.1] stays",
        f"{path} is left as it was",
    ]
    assert not (tmp_path / "small.yaml.bak").exists()


def test_two_ranges_that_share_an_anchor_are_set_apart(tmp_path: Path) -> None:
    shared = TEXT.replace("log: [1e-3, 1]", "log: &both [1e-3, 1]")
    path = write(tmp_path, shared.replace("log: [0.01, 0.1]", "log: *both"))
    open_spec_file(load_spec(path)).write((0.05, None), None)
    search = load_spec(path).spec.search
    assert search.beta.log == (0.05, 1)
    assert search.target_kl is not None
    assert search.target_kl.log == (0.001, 1)
