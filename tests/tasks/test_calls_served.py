from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kltune.tasks.calls_child import Origin, put_message, take_message
from kltune.tasks.protocol import Prompt, Sample

ROOT = Path(__file__).parents[2]


def test_it_says_ready_then_scores_and_ends_with_its_input(tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text("def f(completions): return [2.0]\n", encoding="utf-8")
    origin = Origin("r.py:f", tmp_path / "r.py", ())
    start = "from kltune.tasks.calls_served import serve; serve()"
    with subprocess.Popen(
        [sys.executable, "-c", start],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        put_message(process.stdin, (origin, 5.0, [Sample(Prompt("p", "q"), "a", (1,), True)]))
        assert take_message(process.stdout) == "ready"
        assert take_message(process.stdout) == ("scores", [2.0])
        process.stdin.close()
        assert process.wait(10) == 0


def test_no_torch_is_loaded_for_it() -> None:
    code = "import sys, kltune.tasks.calls_served; assert 'torch' not in sys.modules"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 0
