"""A bad spec is refused before anything heavy loads and before anything is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from spec_files import minimal, write

from kltune.errors import SpecError
from kltune.launch.request import SweepRequest
from kltune.launch.sweep import run_sweep


def test_a_bad_spec_leaves_no_study_folder(tmp_path: Path) -> None:
    spec = {**minimal(), "budget": {"trials": 0}}
    request = SweepRequest(write(tmp_path, spec), study_path=tmp_path / "study")
    with pytest.raises(SpecError, match=r"budget\.trials"):
        run_sweep(request)
    assert not (tmp_path / "study").exists()


def test_a_bad_spec_is_refused_without_torch_optuna_or_mlflow(tmp_path: Path) -> None:
    path = write(tmp_path, {**minimal(), "budget": {"trials": 0}})
    code = (
        "import sys\nfrom pathlib import Path\nfrom kltune.errors import SpecError\n"
        "from kltune.launch.request import SweepRequest\nfrom kltune.launch.sweep import run_sweep\n"
        "try:\n    run_sweep(SweepRequest(Path(sys.argv[1])))\nexcept SpecError:\n"
        "    print(sorted({'torch', 'optuna', 'mlflow', 'transformers'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
