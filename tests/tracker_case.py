"""A written record to mirror, a ready database, and a small MLflow server that can misbehave."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from kltune.metrics.jsonl import append_rows, write_json
from kltune.metrics.mirror import MlflowMirror
from kltune.metrics.payload import DatasetFacts
from kltune.metrics.tracker import resolve_tracker


class Trial:
    """Writes the files of one trial's folder, as kltune.trial.folder does."""

    def __init__(self, study: Path, number: int) -> None:
        self.folder = study / "trials" / f"{number:05d}"
        self.number = number

    def config(self, attempt: int = 1, start: int = 0, **setting: object) -> None:
        config = {
            "trial": self.number,
            "attempt": attempt,
            "origin": "tpe",
            "setting": {"beta": 0.1, "seed": 0, **setting},
            "sigma_r": 0.5,
            "kl_unit": "token",
            "beta_unit": "reward",
        }
        write_json(self.folder / "config.json", config)
        self.event(attempt, "started" if attempt == 1 else "resumed", start)

    def event(self, attempt: int, event: str, step: int, **fields: object) -> None:
        head = {**self._head(attempt, step), "event": event}
        append_rows(self.folder / "events.jsonl", [{**head, **fields}])

    def end(
        self, attempt: int, state: str, reason: str, detail: str, value: float | None = None
    ) -> None:
        fields: dict[str, object] = {
            "state": state,
            "reason": reason,
            "detail": detail,
            "feasible": True,
        }
        fields["value"] = value
        self.event(attempt, "ended", 20, **fields)

    def steps(self, attempt: int, first: int, last: int) -> None:
        """Steps first to last, then an evaluation with a sample at last."""
        for step in range(first, last + 1):
            values = {"ctrl/beta": 0.1, "train/loss": None if step == 3 else step / 10}
            append_rows(self.folder / "metrics.jsonl", [{**self._head(attempt, step), **values}])
        head = self._head(attempt, last)
        text = {"prompt_id": "p", "prompt": "Wie lange? é", "completion": f"{last} min"}
        append_rows(self.folder / "samples.jsonl", [{**head, **text, "gold": 0.5}])
        append_rows(self.folder / "evals.jsonl", [{**head, "eval/gold": 0.5}])

    def _head(self, attempt: int, step: int) -> dict[str, object]:
        return {
            "trial": self.number,
            "attempt": attempt,
            "step": step,
            "time": 1e9 + step + 5000 * (attempt - 1),
        }


class Bench:
    """What a test of the mirror needs at hand."""

    Trial = Trial

    def __init__(self, empty_database: Path) -> None:
        self.empty_database = empty_database

    def study(self, path: Path) -> Path:
        """Make a study folder with a ready database."""
        path.mkdir(parents=True)
        shutil.copy(self.empty_database, path / "mlflow.db")
        write_json(path / "resolved.json", {"name": "kitchen", "budget": {"trials": 5}})
        write_json(path / "env.json", {"python": "3.11"})
        (path / "spec.yaml").write_text("name: kitchen\n")
        return path

    def mirror(self, study: Path, uri: str | None = None) -> MlflowMirror:
        datasets = [
            DatasetFacts(role, "kitchen", f"{role:0<64}", 9, 'a "quoted" file')
            for role in ("train", "test")
        ]
        return MlflowMirror(study, resolve_tracker(study, uri, {}), "kitchen", datasets)

    def client(self, study: Path) -> Any:
        from mlflow.tracking.client import MlflowClient

        return MlflowClient(f"sqlite:///{study / 'mlflow.db'}")

    def runs(self, study: Path) -> tuple[Any, dict[int, Any]]:
        """Read the parent run, and the child runs by trial number."""
        client = self.client(study)
        found = client.search_runs([client.get_experiment_by_name("kitchen").experiment_id])
        children = {
            int(run.data.tags["kltune.trial_number"]): run
            for run in found
            if "kltune.trial_number" in run.data.tags
        }
        parents = [run for run in found if "kltune.study_key" in run.data.tags]
        assert len(parents) == 1
        assert len(children) == len(found) - 1
        return parents[0], children

    def wait(self, is_so: Callable[[], bool], timeout_s: float = 30.0) -> None:
        end = time.monotonic() + timeout_s
        while not is_so():
            assert time.monotonic() < end, "it did not come about in time"
            time.sleep(0.05)


CREATE = """
import sys, time
from pathlib import Path
from kltune.metrics.mirror import MlflowMirror
from kltune.metrics.tracker import resolve_tracker
study = Path(sys.argv[1]); study.mkdir(exist_ok=True)
mirror = MlflowMirror(study, resolve_tracker(study, sys.argv[2] or None, {}), "shared", [])
mirror.start()
end = time.monotonic() + 240
while mirror._connection.runs is None and sys.argv[3] == "alone" and time.monotonic() < end:
    time.sleep(0.1)
assert mirror.close("FINISHED", timeout_s=240), "not all was sent"
"""


def create_all(folder: Path, uri: str, names: str, *, is_one_study: bool) -> list[int]:
    """Mirror a study in a process for each letter, all at once; return their exit codes."""
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", CREATE),
                *(str(folder / ("all" if is_one_study else name)), uri),
                "together" if is_one_study else "alone",
            ]
        )
        for name in names
    ]
    return [process.wait(300) for process in processes]


class FakeServer(ThreadingHTTPServer):
    """The part of MLflow's REST interface that the mirror uses, in memory."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, artifacts: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.artifacts = artifacts
        self.state_lock = threading.Lock()
        self.is_down = False
        self.falls_after_metrics = False
        self.is_hanging = threading.Event()
        self.drops = 0
        """Replies to the next creates of a run that get lost."""
        self.refused_metric = ""
        self.experiments: dict[str, str] = {}
        self.run_ids: list[str] = []
        self.tags: dict[str, dict[str, str]] = {}
        self.params: dict[str, dict[str, str]] = {}
        self.metrics: list[tuple[str, str, int]] = []
        """Run id, name and step, as they came."""
        self.status: dict[str, str] = {}
        self.metric_requests = 0
        """Those of trials: the log of the system comes when it likes."""
        self.released = threading.Event()

    @property
    def uri(self) -> str:
        return f"http://u:S3CRET@127.0.0.1:{self.server_port}"

    def forget(self) -> None:
        """Come back with an empty database."""
        self.experiments.clear()
        for kept in (self.run_ids, self.tags, self.params, self.metrics, self.status):
            kept.clear()

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if body.get("run_id", "") not in ("", *self.run_ids):
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no such run"}
        name = path.rpartition("mlflow/")[2].replace("/", "_").replace("-", "_")
        return getattr(self, f"on_{name}")(body)

    def on_experiments_search(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return 200, {"experiments": []}

    def on_experiments_get_by_name(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name = body["experiment_name"]
        if name not in self.experiments:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no"}
        found = {"experiment_id": self.experiments[name], "name": name, "lifecycle_stage": "active"}
        return 200, {"experiment": found}

    def on_experiments_get(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        found = {"experiment_id": body["experiment_id"], "name": "n", "lifecycle_stage": "active"}
        return 200, {"experiment": found}

    def on_experiments_create(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.experiments[body["name"]] = "7"
        return 200, {"experiment_id": "7"}

    def on_runs_delete(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.run_ids.remove(body["run_id"])
        del self.tags[body["run_id"]]
        return 200, {}

    def on_runs_create(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if body["experiment_id"] not in self.experiments.values():
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no experiment"}
        run_id = uuid4().hex  # MLflow caches where a run's artifacts are, for the whole process
        self.run_ids.append(run_id)
        self.tags[run_id] = {tag["key"]: tag["value"] for tag in body["tags"]}
        self.params[run_id] = {}
        self.status[run_id] = "RUNNING"
        return 200, {"run": self._run(run_id)}

    def on_runs_get(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return 200, {"run": self._run(body["run_id"])}

    def on_runs_search(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if set(body["experiment_ids"]) - set(self.experiments.values()):
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no experiment"}
        wanted = body["filter"].partition("= ")[2].strip("'")
        found = [run_id for run_id, tags in self.tags.items() if wanted in tags.values()]
        return 200, {"runs": [self._run(run_id) for run_id in found]}

    def on_runs_update(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.status[body["run_id"]] = body["status"]
        return 200, {"run_info": self._run(body["run_id"])["info"]}

    def on_runs_log_batch(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        metrics = body.get("metrics", [])
        is_trials = "ctrl/beta" in [metric["key"] for metric in metrics]
        self.metric_requests += is_trials
        self.is_down = self.falls_after_metrics and is_trials
        if self.refused_metric in [metric["key"] for metric in metrics]:
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "not this one"}
        run_id = body["run_id"]
        self.metrics += [(run_id, m["key"], int(m["step"])) for m in metrics]
        self.params[run_id] |= {p["key"]: p["value"] for p in body.get("params", [])}
        self.tags[run_id] |= {t["key"]: t["value"] for t in body.get("tags", [])}
        return 200, {}

    def on_runs_log_inputs(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return 200, {}

    def _run(self, run_id: str) -> dict[str, Any]:
        info = {
            "run_id": run_id,
            "experiment_id": "7",
            "status": self.status[run_id],
            "lifecycle_stage": "active",
            "artifact_uri": (self.artifacts / run_id).as_uri(),
        }
        params = [{"key": key, "value": value} for key, value in self.params[run_id].items()]
        tags = [{"key": key, "value": value} for key, value in self.tags[run_id].items()]
        return {"info": info, "data": {"params": params, "tags": tags}}


class _Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        self._reply({key: values[0] for key, values in query.items()})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self._reply(json.loads(self.rfile.read(length) or b"{}"))

    def _reply(self, body: dict[str, Any]) -> None:
        if self.server.is_hanging.is_set():
            self.server.released.wait(60)
            return
        if self.server.is_down:
            code, answer = 503, {"error_code": "TEMPORARILY_UNAVAILABLE", "message": "later"}
        else:
            with self.server.state_lock:
                code, answer = self.server.answer(urlsplit(self.path).path, body)
                if self.path.endswith("runs/create") and self.server.drops:
                    self.server.drops -= 1
                    return
        text = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        pass
