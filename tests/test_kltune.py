"""``import kltune`` is light, and gives what README says."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kltune

PACKAGE = Path(kltune.__file__).parent


def test_importing_the_package_loads_nothing_beside_it() -> None:
    code = "import sys, kltune; print(*sorted(n for n in sys.modules if '.' not in n or n[:7] == 'kltune.'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "kltune" in loaded
    assert not [name for name in loaded if name.startswith("kltune.")]
    assert not {"pandas", "numpy", "torch", "pydantic", "optuna"} & set(loaded)


def test_the_stub_names_what_the_package_gives() -> None:
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    aliases = [a for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names]
    public = {alias.asname for alias in aliases}
    assert public == {"Arms", "Study", "open_arms", "open_study", "run_arms", "sweep"}
    assert public <= set(dir(kltune))
    for name in public:
        assert getattr(kltune, str(name)).__module__.startswith("kltune.api.")


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = kltune.nope  # type: ignore[attr-defined]
    assert not hasattr(kltune, "__path_of_nothing__")
