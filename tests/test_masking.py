"""Secrets are hidden in whatever form they are written; ordinary text stays as it is."""

from __future__ import annotations

import logging
from pathlib import Path
from urllib.parse import quote

import pytest

from kltune.masking import hide_known, mask_record, name_secret, redact, secrets_of, traceback_of
from kltune.metrics.jsonl import append_rows, write_json
from kltune.trial.outcome import StopReason, Verdict


@pytest.mark.parametrize(
    "text",
    [
        "http://u:S3 CRET@h/x failed",
        "http:/u:S3CRET@h taken for a path",
        "postgresql://u:it's S3CRET@h/db",
        "connection to host=a password=S3CRET user=b",
        "{'user': 'u', 'password': 'S3CRET'}",
        '{"api_key": "S3CRET"}',
        "Authorization: Basic S3CRET",
        "mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BPWD%3DS3CRET",
        "got hf_S3CRETS3CRETS3CRETS3CRET",
    ],
)
def test_what_has_the_form_of_a_secret_is_hidden(text: str) -> None:
    assert "S3CRET" not in redact(text)
    assert "***" in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "see https://medium.com/@someone/post",
        "open http://localhost:5000/ or mail me@example.org",
        "sqlite:////data/me@work/study.db",
        "file:///data/me@work/artifacts",
        "a password: use PGPASSWORD",
        "Basic knowledge of tokens=5",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert redact(text) == text


def test_a_value_of_the_environment_is_hidden_however_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secret = "p@ss w'o/rd%<&"
    monkeypatch.setenv("PGPASSWORD", secret)
    for form in (
        secret,
        quote(secret, safe=""),
        quote(secret),
        repr(secret),
        quote(secret).lower(),
    ):
        assert redact(f"x{form}y").strip("xy'\"") == "***", form


def test_model_text_is_touched_by_value_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "ask http://u:pw@h/?key=abc with hf_aaaaaaaaaaaaaaaaaaaaaaaa"
    assert hide_known(text) == text
    monkeypatch.setenv("MY_TOKEN", "a-secret-of-mine")
    assert hide_known(f"{text} a-secret-of-mine") == f"{text} ***"


def test_names_say_what_is_secret() -> None:
    environ = {
        "TOKENIZERS_PARALLELISM": "false", "HF_TOKEN": "abcd-1", "PWD": "/srv/dir", "AWS_REGION": "eu-1",
        "AWS_SECRET_ACCESS_KEY": "abcd-2", "GRADER": "abcd-3", "KLTUNE_SECRETS": "GRADER",
        "KLTUNE_STORAGE": "mysql://u:ab%2Fcd-4@h/db?sslpassword=abcd-5", "X_TOKEN": "no",
    }  # fmt: skip
    assert set(secrets_of(environ)) == {
        "abcd-1",
        "abcd-2",
        "abcd-3",
        "ab%2Fcd-4",
        "ab/cd-4",
        "abcd-5",
    }


def test_a_word_within_others_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "cook")
    assert redact("cookies, cook!") == "cookies, ***!"


def test_a_variable_that_is_named_is_hidden_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KLTUNE_SECRETS", "")
    monkeypatch.setenv("GRADER", "grader-key-1")
    assert redact("grader-key-1") == "grader-key-1"
    name_secret("GRADER")
    assert redact("grader-key-1") == "***"


def test_records_and_tracebacks_are_hidden_with_what_led_to_them() -> None:
    def outer() -> None:
        try:
            raise OSError("http://u:S3CRET@h")
        except OSError as error:
            raise RuntimeError("password=S3CRET") from error

    with pytest.raises(RuntimeError) as caught:
        outer()
    told = traceback_of(caught.value).replace('"password=S3CRET"', "").replace('u:S3CRET@h")', "")
    assert "OSError: http://***@h" in told
    assert "S3CRET" not in told
    info = (RuntimeError, caught.value, None)
    record = logging.LogRecord("x", 40, "f", 1, "at %s", ("http://u:S3CRET@h",), info)
    assert mask_record(record).getMessage() == "at http://***@h"
    assert record.exc_info is None
    assert "RuntimeError: password=***" in str(record.exc_text)


def test_rows_and_json_files_hold_no_secret_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "geheim-4711")
    append_rows(
        tmp_path / "events.jsonl", [{"detail": ["said geheim-4711"], "in": {"a": "geheim-4711"}}]
    )
    write_json(tmp_path / "config.json", {"a": "geheim-4711"})
    for path in tmp_path.iterdir():
        assert "geheim" not in path.read_text(encoding="utf-8")
        assert "***" in path.read_text(encoding="utf-8")


def test_why_a_trial_ended_holds_no_secret() -> None:
    verdict = Verdict(StopReason.ERROR, "no answer from https://u:geheim-4711@h/x")
    assert verdict.detail == "no answer from https://***@h/x"
