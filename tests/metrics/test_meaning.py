from __future__ import annotations

import sqlite3

import pytest

from kltune.metrics.meaning import answered, failed
from kltune.metrics.outage import TrackerLoss, TrackerOutage, TrackerRefusal

PAGE = "API request to endpoint /api failed with error code {} != 200. Response body: 'no'"


@pytest.mark.parametrize(
    ("text", "status", "code", "is_mlflows_own", "kind"),
    [
        ("INVALID: no", 400, "INVALID_PARAMETER_VALUE", True, TrackerRefusal),
        ("not here", 404, "RESOURCE_DOES_NOT_EXIST", True, TrackerLoss),
        (PAGE.format(404), 404, "RESOURCE_DOES_NOT_EXIST", False, TrackerOutage),  # a gateway's
        (PAGE.format(400), 400, "BAD_REQUEST", False, TrackerOutage),
        (PAGE.format(413), 413, "BAD_REQUEST", False, TrackerRefusal),
        ("later", 429, "REQUEST_LIMIT_EXCEEDED", True, TrackerOutage),
        ("login", 401, "UNAUTHENTICATED", True, TrackerOutage),
        ("oops", 500, "INTERNAL_ERROR", True, TrackerOutage),
        ("database disk image is malformed", 400, "BAD_REQUEST", False, TrackerLoss),
        ("(sqlite3.OperationalError) database is locked", 503, "X", False, TrackerOutage),
    ],
)
def test_what_mlflow_answers(
    text: str, status: int, code: str, is_mlflows_own: bool, kind: type[Exception]
) -> None:
    found = answered(RuntimeError(text), status, code, is_mlflows_own=is_mlflows_own)
    assert type(found) is kind


def test_what_fails_below_mlflow() -> None:
    assert type(failed(ConnectionResetError("gone"))) is TrackerOutage
    assert type(failed(PermissionError("no"))) is TrackerRefusal
    assert type(failed(ImportError("boto3"))) is TrackerRefusal
    assert type(failed(sqlite3.OperationalError("database is locked"))) is TrackerOutage
    assert type(failed(sqlite3.DatabaseError("file is not a database"))) is TrackerLoss


def test_a_store_of_files_that_takes_none_is_a_refusal() -> None:
    import requests

    for status, kind in ((501, TrackerOutage), (404, TrackerRefusal)):
        response = requests.Response()
        response.status_code = status
        assert type(failed(requests.HTTPError("no", response=response))) is kind


def test_credentials_are_not_repeated() -> None:
    assert "S3CRET" not in str(failed(OSError("http://u:S3CRET@h:5000/ is away")))
