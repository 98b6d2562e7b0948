"""Loads the script of a study below studies/."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

STUDIES = Path(__file__).parents[1] / "studies"


def load_script(name: str) -> ModuleType:
    """``studies/NAME/study.py`` as a module."""
    path = STUDIES / name / "study.py"
    module_name = f"study_{name.replace('-', '_')}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    sys.path.insert(0, str(STUDIES))  # what the scripts share
    found = importlib.util.spec_from_file_location(module_name, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[module_name] = module
    found.loader.exec_module(module)
    return module


def run_small(name: str, out: Path) -> dict[str, Any]:
    """The study scaled down, trained and analysed into ``out``; its results."""
    module = load_script(name)
    return sys.modules["experiment"].run_study(module.STUDY, out, small=True)
