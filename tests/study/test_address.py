"""Where a study is kept, and that nobody reads its password."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from fake_bank import small_spec
from pydantic import ValidationError

from kltune.errors import SpecError, StudyError
from kltune.study.address import (
    Address,
    address_of_url,
    note_address,
    read_address,
    resolve_address,
    with_ambient_secret,
)

PLAIN = "postgresql://ann@db.example/kl"
SECRET = "postgresql://ann:hunter%2F2@db.example/kl"
OTHER = "postgresql://ann@db.example/other"


def spec_with(url: str | None):
    return small_spec(storage={"url": url})


def test_flag_before_spec_before_environment_before_sqlite(tmp_path: Path) -> None:
    bare, environ = small_spec(), {"KLTUNE_STORAGE": "mysql://ann@db/env"}
    assert resolve_address(tmp_path, bare, None, {}) == Address(None, "small")
    assert resolve_address(tmp_path, bare, None, environ).url == "mysql://ann@db/env"
    assert resolve_address(tmp_path, spec_with(PLAIN), None, environ).url == PLAIN
    assert resolve_address(tmp_path, spec_with(PLAIN), OTHER, environ).url == OTHER


def test_the_environment_adds_a_password_to_the_same_place_and_to_no_other(tmp_path: Path) -> None:
    environ = {"KLTUNE_STORAGE": SECRET}
    assert resolve_address(tmp_path, spec_with(PLAIN), None, environ).url == SECRET
    assert resolve_address(tmp_path, small_spec(), PLAIN, environ).url == SECRET
    assert resolve_address(tmp_path, small_spec(), OTHER, environ).url == OTHER
    with_port = "postgres://db.example:5432/kl"
    assert with_ambient_secret(with_port, environ).url == SECRET
    assert with_ambient_secret("postgresql://bob@db.example/kl", environ).url != SECRET


def test_a_study_on_a_server_is_found_by_its_folder_alone(tmp_path: Path) -> None:
    note_address(tmp_path, Address(SECRET, "small"), "abc")
    text = (tmp_path / "storage.json").read_text(encoding="utf-8")
    assert "hunter" not in text
    assert json.loads(text)["url"] == PLAIN
    assert read_address(tmp_path, {}) == Address(PLAIN, "small")
    assert resolve_address(tmp_path, small_spec(), None, {}) == Address(PLAIN, "small")
    found = resolve_address(tmp_path, small_spec(), None, {"KLTUNE_STORAGE": SECRET})
    assert found == Address(SECRET, "small")


def test_a_study_stays_where_it_was_begun_whatever_the_environment_says(tmp_path: Path) -> None:
    note_address(tmp_path, Address(PLAIN, "small"), "abc")
    assert resolve_address(tmp_path, small_spec(), None, {"KLTUNE_STORAGE": OTHER}).url == PLAIN
    (tmp_path / "storage.json").unlink()
    (tmp_path / "study.db").write_bytes(b"x")
    found = resolve_address(tmp_path, small_spec(), None, {"KLTUNE_STORAGE": PLAIN})
    assert not found.is_server


def test_another_place_by_flag_or_spec_is_refused_with_both_named(tmp_path: Path) -> None:
    note_address(tmp_path, Address(PLAIN, "small"), "abc")
    with pytest.raises(StudyError, match=r"kept in .*/kl, and --storage names .*/other"):
        resolve_address(tmp_path, small_spec(), OTHER, {})
    with pytest.raises(StudyError, match=r"storage\.url names"):
        resolve_address(tmp_path, spec_with(OTHER), None, {})
    (tmp_path / "storage.json").unlink()
    (tmp_path / "study.db").write_bytes(b"x")
    with pytest.raises(StudyError, match=r"kept in study\.db"):
        resolve_address(tmp_path, small_spec(), PLAIN, {})


def test_begun_anew_it_has_another_name_on_the_server_and_the_old_place_counts_no_more(
    tmp_path: Path,
) -> None:
    note_address(tmp_path, Address(PLAIN, "small"), "abc")
    found = resolve_address(tmp_path, small_spec(), OTHER, {}, fresh="20261130-101112")
    assert found == Address(OTHER, "small.20261130-101112")
    assert resolve_address(tmp_path, small_spec(), None, {}, fresh="x") == Address(None, "small")


@pytest.mark.parametrize(
    "url",
    [
        SECRET,
        "postgresql://db/kl?password=hunter2",
        "postgresql://db/kl?sslpassword=hunter2",
        "mysql://ann:hunter2@db/kl",
    ],
)
def test_a_password_where_others_read_it_is_refused_without_saying_it(
    tmp_path: Path, url: str
) -> None:
    for refused in (
        lambda: resolve_address(tmp_path, small_spec(), url, {}),
        lambda: address_of_url(f"{url}#small", {}),
        lambda: spec_with(url),
    ):
        with pytest.raises((SpecError, ValidationError)) as error:
            refused()
        said = str(error.value).partition("input_value")[
            0
        ]  # pydantic's own words: see test_storage of spec
        assert "PGPASSWORD" in said
        assert "KLTUNE_STORAGE" in said
        assert "hunter" not in said


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("sqlite:///x.db", "got 'sqlite'.*without a storage the study keeps study.db"),
        ("oracle://x/y", "got 'oracle'"),
        ("db.example/kl", "no scheme"),
        ("postgresql://db.example", "names no database"),
        ("postgresql://ann:p/w@db:x/kl", "percent-encoded"),
        ("postgresql+psycopg2://db/kl", "got 'postgresql"),
    ],
)
def test_what_is_no_address_of_a_server_is_refused_naming_what_is(
    tmp_path: Path, url: str, why: str
) -> None:
    with pytest.raises(SpecError, match=why) as error:
        resolve_address(tmp_path, small_spec(), url, {})
    assert error.value.exit_code == 2
    assert "p/w" not in str(error.value)
    with pytest.raises(SpecError, match=f"KLTUNE_STORAGE: .*{why}"):
        resolve_address(tmp_path, small_spec(), None, {"KLTUNE_STORAGE": url})


def test_no_form_of_an_address_shows_its_secrets() -> None:
    url = "postgresql://ann:hunter%2F2@db/kl?sslpassword=se%20same&sslmode=require"
    address = Address(url, "small")
    for text in (repr(address), str(address), address.shown, f"{address}", repr([address])):
        assert "hunter" not in text
        assert "same" not in text
    assert address.shown == "postgresql://ann@db/kl?sslmode=require"
    for said in (f"could not parse {url}", "FATAL: hunter/2 is wrong", "se same", "se%20same"):
        assert not {"hunter", "same"} & set(address.hide(said).replace("/", " ").split())
        assert "***" in address.hide(said)
    assert copy.copy(address) == address


def test_a_local_socket_keeps_its_form() -> None:
    address = Address("postgresql:///kl?host=/var/run/pg", "small")
    assert address.shown == "postgresql:///kl?host=/var/run/pg"
    assert with_ambient_secret("postgresql://ann@/kl?host=/run", {}).url is not None


def test_a_study_in_a_database_is_named_by_its_fragment() -> None:
    found = address_of_url(f"{PLAIN}#kitchen-grpo", {"KLTUNE_STORAGE": SECRET})
    assert found == Address(SECRET, "kitchen-grpo")
    with pytest.raises(SpecError, match="names no study"):
        address_of_url(PLAIN, {})


def test_a_storage_json_that_says_nothing_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "storage.json"
    for text in ("{", "[]", '{"url": 3, "study": "x"}', '{"url": "file:///etc/x", "study": "x"}'):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(StudyError, match=r"storage\.json"):
            read_address(tmp_path, {})
