from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

# MLflow's own use of SQLAlchemy, not ours.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")


@pytest.fixture
def trial(tmp_path: Path, bench: Any) -> Any:
    """A trial of ten steps in a new study."""
    trial = bench.Trial(bench.study(tmp_path / "kitchen"), 1)
    trial.config()
    trial.steps(1, 1, 10)
    return trial


def _steps_of(server: Any, name: str) -> list[int]:
    return [step for _, key, step in server.metrics if key == name]


def test_an_outage_is_reported_once_and_loses_nothing(
    bench: Any,
    server: Any,
    trial: Any,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mirror = bench.mirror(trial.folder.parents[1], server.uri)
    with caplog.at_level(logging.INFO):
        mirror.start()
        bench.wait(lambda: _steps_of(server, "ctrl/beta") == list(range(1, 11)))
        server.is_down = True
        for first in (11, 21):
            trial.steps(1, first, first + 9)
            mirror.notice(trial.folder)
            mirror.log_study({"study/bookkeeping_frac": first / 1000}, step=first)
        time.sleep(2.5)
        server.is_down = False
        bench.wait(lambda: len(_steps_of(server, "study/bookkeeping_frac")) == 2)
        assert _steps_of(server, "ctrl/beta") == list(range(1, 31))
        trial.end(1, "complete", "done", "all 30 steps")
        mirror.notice(trial.folder)
        assert mirror.close("FINISHED")
    assert _steps_of(server, "ctrl/beta") == list(range(1, 31))
    assert _steps_of(server, "eval/gold") == [10, 20, 30]
    assert _steps_of(server, "study/bookkeeping_frac") == [11, 21]
    assert _steps_of(server, "study/trials_ended") == [1]
    assert set(server.status.values()) == {"FINISHED"}
    assert caplog.text.count("Training goes on") == 1
    assert "is back and up to date" in caplog.text
    assert "S3CRET" not in caplog.text
    assert capsys.readouterr().out == ""  # stdout is for results
    folder = server.artifacts / server.run_ids[1] / "samples"
    assert len(list(folder.iterdir())) == 3


def test_what_arrived_before_an_outage_is_not_sent_again(
    bench: Any, server: Any, trial: Any
) -> None:
    server.falls_after_metrics = True
    mirror = bench.mirror(trial.folder.parents[1], server.uri)
    mirror.start()
    bench.wait(lambda: server.is_down)
    time.sleep(0.3)
    server.falls_after_metrics = server.is_down = False
    samples = server.artifacts / server.run_ids[1] / "samples" / "step_00010.json"
    bench.wait(samples.exists)
    assert mirror.close("FINISHED")
    assert _steps_of(server, "ctrl/beta") == list(range(1, 11))


def test_what_an_outage_held_back_is_sent_at_the_next_start(
    bench: Any, server: Any, trial: Any, caplog: pytest.LogCaptureFixture
) -> None:
    study = trial.folder.parents[1]
    server.is_down = True
    first = bench.mirror(study, server.uri)
    first.start()
    first.notice(trial.folder)
    assert not first.close("FINISHED")
    assert "the next start of this study sends the rest" in caplog.text
    assert server.run_ids == []
    server.is_down = False
    second = bench.mirror(study, server.uri)
    second.start()
    assert second.close("FINISHED")
    assert _steps_of(server, "ctrl/beta") == list(range(1, 11))
    assert "S3CRET" not in caplog.text
    assert not any("S3CRET" in path.read_text() for path in study.rglob("*.json*"))


def test_a_create_whose_reply_was_lost_leaves_one_run(bench: Any, server: Any, trial: Any) -> None:
    server.drops = 2  # the parent's; then, after it was found, the child's
    mirror = bench.mirror(trial.folder.parents[1], server.uri)
    mirror.start()
    bench.wait(lambda: len(_steps_of(server, "ctrl/beta")) == 10)
    assert mirror.close("FINISHED")
    assert len(server.run_ids) == 2


def test_a_refused_metric_costs_only_itself(
    bench: Any, server: Any, trial: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server.refused_metric = "train/loss"
    mirror = bench.mirror(trial.folder.parents[1], server.uri)
    mirror.start()
    assert mirror.close("FINISHED")
    assert _steps_of(server, "ctrl/beta") == list(range(1, 11))
    assert _steps_of(server, "train/loss") == []
    assert caplog.text.count("refused values of train/loss") == 1


def test_an_evaluation_is_one_request_of_metrics(bench: Any, server: Any, trial: Any) -> None:
    mirror = bench.mirror(trial.folder.parents[1], server.uri)
    mirror.start()
    bench.wait(lambda: _steps_of(server, "eval/gold") == [10])
    trial.steps(1, 11, 20)
    mirror.notice(trial.folder)
    assert mirror.close("FINISHED")
    assert server.metric_requests == 2


@pytest.mark.slow
def test_closing_does_not_wait_for_a_server_that_hangs(bench: Any, server: Any, trial: Any) -> None:
    server.is_hanging.set()
    code = (
        "import sys, time; from pathlib import Path\n"
        "from kltune.metrics.mirror import MlflowMirror\n"
        "from kltune.metrics.tracker import resolve_tracker\n"
        "study = Path(sys.argv[1])\n"
        "tracker = resolve_tracker(study, sys.argv[2], {})\n"
        "mirror = MlflowMirror(study, tracker, 'kitchen', [])\n"
        "mirror.start(); mirror.notice(study / 'trials' / '00001')\n"
        "assert not mirror.close('KILLED')\n"
    )
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, str(trial.folder.parents[1]), server.uri],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - start < 15 + 5  # 5 s to start Python
    assert "S3CRET" not in done.stdout + done.stderr


@pytest.mark.slow
def test_starting_does_not_wait_for_mlflow(bench: Any, tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from kltune.metrics.mirror import MlflowMirror\n"
        "from kltune.metrics.tracker import resolve_tracker\n"
        "study = Path(sys.argv[1]); start = time.monotonic()\n"
        "mirror = MlflowMirror(study, resolve_tracker(study, None, {}), 'kitchen', [])\n"
        "assert 'mlflow' not in sys.modules\n"
        "mirror.start(); print(time.monotonic() - start)\n"
        "assert mirror.close('FINISHED', timeout_s=60)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(bench.study(tmp_path / "kitchen"))],
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert float(done.stdout) < 0.3


def test_a_server_that_comes_back_empty_gets_everything_anew(
    bench: Any, server: Any, trial: Any
) -> None:
    mirror = bench.mirror(trial.folder.parents[1], server.uri)
    mirror.start()
    bench.wait(lambda: _steps_of(server, "eval/gold") == [10])
    with server.state_lock:
        server.forget()
    trial.steps(1, 11, 20)
    trial.end(1, "complete", "done", "all 20 steps", value=0.5)
    mirror.notice(trial.folder)
    assert mirror.close("FINISHED")
    assert _steps_of(server, "ctrl/beta") == list(range(1, 21))
    assert _steps_of(server, "eval/gold") == [10, 20]
    assert _steps_of(server, "study/trials_ended") == [1]
    assert len(server.run_ids) == 2


def test_a_hiccup_at_the_very_end_is_tried_again(bench: Any, server: Any, trial: Any) -> None:
    mirror = bench.mirror(trial.folder.parents[1], server.uri)
    mirror.start()
    bench.wait(lambda: _steps_of(server, "eval/gold") == [10])
    trial.steps(1, 11, 20)
    server.is_down = True
    threading.Timer(1.5, lambda: setattr(server, "is_down", False)).start()
    assert mirror.close("FINISHED")
    assert _steps_of(server, "ctrl/beta") == list(range(1, 21))


def test_a_trial_of_another_process_is_found_without_a_notice(
    bench: Any, server: Any, trial: Any
) -> None:
    mirror = bench.mirror(trial.folder.parents[1], server.uri)
    mirror.poll_s = 0.1
    mirror.start()
    bench.wait(lambda: _steps_of(server, "eval/gold") == [10])
    other = bench.Trial(trial.folder.parents[1], 2)
    other.config()
    other.steps(1, 1, 10)
    bench.wait(lambda: _steps_of(server, "eval/gold") == [10, 10])
    assert mirror.close("KILLED")
    assert set(server.status.values()) == {"KILLED"}  # nobody is left to run the trials


def test_one_that_stands_by_sends_nothing_and_leaves_at_once(
    bench: Any, server: Any, trial: Any
) -> None:
    study = trial.folder.parents[1]
    first, second = bench.mirror(study, server.uri), bench.mirror(study, server.uri)
    first.start()
    bench.wait(lambda: _steps_of(server, "eval/gold") == [10])
    second.start()
    second.notice(trial.folder)
    start = time.monotonic()
    assert second.close("FINISHED", is_last=False)
    assert time.monotonic() - start < 2
    assert server.status[server.run_ids[0]] == "RUNNING"
    assert first.close("FINISHED")
    assert server.status[server.run_ids[0]] == "FINISHED"
    assert len(server.run_ids) == 2


def test_the_last_one_gives_up_on_a_holder_that_never_leaves(
    bench: Any, server: Any, trial: Any, caplog: pytest.LogCaptureFixture
) -> None:
    study = trial.folder.parents[1]
    first, second = bench.mirror(study, server.uri), bench.mirror(study, server.uri)
    first.start()
    bench.wait(lambda: first._lock.is_held)
    second.start()
    start = time.monotonic()
    assert not second.close("FINISHED", timeout_s=2.0)
    assert time.monotonic() - start < 3
    assert first.close("FINISHED")


def test_a_server_that_was_away_and_comes_back_empty_at_the_very_end_gets_everything(
    bench: Any, server: Any, trial: Any
) -> None:
    mirror = bench.mirror(trial.folder.parents[1], server.uri)
    mirror.start()
    bench.wait(lambda: _steps_of(server, "eval/gold") == [10])
    server.is_down = True
    trial.steps(1, 11, 20)
    mirror.notice(trial.folder)
    bench.wait(lambda: mirror._is_out)
    with server.state_lock:
        server.forget()
    server.is_down = False
    assert mirror.close("FINISHED")
    assert _steps_of(server, "ctrl/beta") == list(range(1, 21))
