"""The spec's address of a database server: without its password, and said in words that hold none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_bank import small_spec
from pydantic import ValidationError

from kltune.errors import SpecError
from kltune.spec.load import load_spec
from kltune.spec.storage import (
    StorageSpec,
    secret_problem,
    secrets_of,
    url_problem,
    without_secret,
)


def test_a_study_without_a_storage_is_kept_in_its_folder() -> None:
    assert small_spec().storage == StorageSpec(url=None)


def test_an_address_of_a_server_is_taken_as_it_is() -> None:
    for url in ("postgresql://ann@db:5433/kl?sslmode=require", "mysql://db/kl", "postgres:///kl"):
        assert StorageSpec(url=url).url == url


def test_a_password_is_refused() -> None:
    for url in ("postgresql://ann:hunter2@db/kl", "postgresql://db/kl?password=hunter2"):
        with pytest.raises(ValidationError, match="holds a password, which others would read here"):
            StorageSpec(url=url)
        assert "hunter2" not in str(secret_problem(url))


@pytest.mark.parametrize(
    "storage",
    [
        {"url": "postgresql://ann:hunter2@db/kl"},
        "postgresql://ann:hunter2@db/kl",
        {"url": "postgresql://ann:hunter2@db"},
        {"url": "redis://ann:hunter2@db/kl"},
        {"address": "postgresql://ann:hunter2@db/kl"},
        [{"url": "x"}],
    ],
)
def test_a_spec_file_with_a_password_is_refused_without_showing_it(
    tmp_path: Path, storage: object
) -> None:
    whole = {**small_spec().model_dump(mode="json"), "storage": storage}
    path = tmp_path / "x.yaml"
    path.write_text(json.dumps(whole), encoding="utf-8")
    with pytest.raises(SpecError, match="storage") as refused:
        load_spec(path)
    assert "hunter2" not in str(refused.value)


def test_the_address_alone_is_enough() -> None:
    url = "postgresql://ann@db/kl"
    assert small_spec(storage=url).storage == StorageSpec(url=url)


def test_what_is_wrong_with_an_address_is_said_without_quoting_it() -> None:
    for url in ("postgresql://ann:hun ter2/x@db:port/kl", "hunter2", "ftp://ann:hunter2@db/kl"):
        problem = url_problem(url)
        assert problem is not None
        assert "hunter2" not in problem
        assert "hun ter" not in problem


def test_secrets_are_taken_out_of_every_place_of_an_address() -> None:
    url = "postgresql://ann:a%40b@db/kl?sslmode=require&sslpassword=c+d&application_name=x"
    assert without_secret(url) == "postgresql://ann@db/kl?sslmode=require&application_name=x"
    assert set(secrets_of(url)) == {"a%40b", "a@b", "c+d", "c d"}
    assert secrets_of("postgresql://ann@db/kl") == ()
    assert without_secret("postgresql://ann@db/kl") == "postgresql://ann@db/kl"
