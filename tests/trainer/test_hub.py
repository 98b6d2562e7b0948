"""A machine without a network says so in seconds; a proxy and the cache are respected."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from kltune.trainer.hub import in_reach
from kltune.trainer.sources import ModelSource

HUB = ModelSource("owner/surely-not-here", None, "hub")


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[int, int]]:
    """One that answers and one that refuses, without a proxy."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield server.getsockname()[1], closed.getsockname()[1]


def at(monkeypatch: pytest.MonkeyPatch, port: int) -> ModelSource:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{port}")
    return in_reach(HUB)


def test_only_a_hub_that_does_not_answer_leaves_the_cache_alone(
    ports: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not at(monkeypatch, ports[0]).is_cached
    assert at(monkeypatch, ports[1]).is_cached
    folder = ModelSource("/x", None, "folder")
    assert in_reach(folder) is folder
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert not at(monkeypatch, ports[1]).is_cached  # its client knows


def test_behind_a_proxy_the_proxy_has_to_answer(
    ports: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://hub.invalid")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{ports[0]}")
    assert not in_reach(HUB).is_cached
    monkeypatch.setenv("http_proxy", f"127.0.0.1:{ports[1]}")
    assert in_reach(HUB).is_cached


def test_a_hub_id_without_a_network_is_one_line_within_seconds(
    tmp_path: Path, ports: tuple[int, int]
) -> None:
    code = """
import sys
from kltune.errors import EnvironmentMissingError
from kltune.spec.model import ModelSpec
from kltune.trainer.model import load_model
from kltune.trainer.sources import ModelSource
from kltune.trainer.tokenizer import load_tokenizer
spec, source = ModelSpec(base="owner/surely-not-here"), ModelSource("owner/surely-not-here", None, "hub")
for load in (lambda: load_model(spec, source, "cpu", "fp32"), lambda: load_tokenizer(spec, source)):
    try:
        load()
    except EnvironmentMissingError as error:
        print(error)
"""
    env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    env |= {"HF_ENDPOINT": f"http://127.0.0.1:{ports[1]}", "HF_HOME": str(tmp_path)}
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE"):
        env.pop(name, None)
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, text=True, capture_output=True, timeout=240
    )
    assert time.monotonic() - begun < 60  # of which almost all is imports
    assert done.stderr == ""
    model, tokenizer = done.stdout.splitlines()
    assert model.startswith(
        "model.base: 'owner/surely-not-here' could not be loaded from the hub: "
    )
    for line in (model, tokenizer):
        assert f"http://127.0.0.1:{ports[1]} does not answer within 5 s" in line
