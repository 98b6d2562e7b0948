from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kltune.errors import SpecError
from kltune.tasks.modules import import_file, import_name


def test_a_file_of_the_same_name_elsewhere_is_another_module(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rate.py").write_text("HERE = __file__\n", encoding="utf-8")
    first, second = (import_file(tmp_path / name / "rate.py", "rate.py:f") for name in ("a", "b"))
    assert first.HERE != second.HERE
    assert first is import_file(tmp_path / "a" / ".." / "a" / "rate.py", "rate.py:f")


def test_a_file_hides_no_installed_module(tmp_path: Path) -> None:
    (tmp_path / "colorsys.py").write_text("raise ValueError('hidden')\n", encoding="utf-8")
    sys.modules.pop("colorsys", None)
    assert import_name("colorsys", [tmp_path], "colorsys:f").__file__ != str(
        tmp_path / "colorsys.py"
    )


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"none\.py can't be read"):
        import_file(tmp_path / "none.py", "none.py:f")
