"""Where a study's trials are kept: a section of the spec in; a database server's address without a secret out."""

from __future__ import annotations

import re
import urllib.parse
from typing import Final

from pydantic import field_validator

from kltune.masking import redact
from kltune.spec.closed import Closed

SCHEMES: Final = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "postgresql+psycopg": "postgresql",
    "mysql": "mysql",
    "mysql+pymysql": "mysql",
    "mariadb": "mysql",
    "mariadb+pymysql": "mysql",
}
"""Beginnings of an address, and the kind of server that each means."""

HOW_TO_GIVE_A_SECRET: Final = (
    "leave it out of the address and give it by PGPASSWORD or ~/.pgpass (PostgreSQL), or give the whole "
    "address in the environment variable KLTUNE_STORAGE"
)
_SECRET: Final = re.compile(
    r"(?:\w*password|passwd|pwd|passphrase|\w*secret|\w*token)", re.IGNORECASE
)
"""Names of query values that are secrets, as libpq's password and sslpassword."""


class StorageSpec(Closed):
    """Where Optuna keeps the trials."""

    url: str | None = None
    """A database server, `postgresql://user@host/database` or `mysql://...`; none: KLTUNE_STORAGE, else
    study.db in the study folder. Without its password."""

    record: str | None = None
    """Where members without a shared folder exchange trials: an fsspec address, `s3://bucket/folder` or `file://...`;
    none: they share the study folder. Without credentials."""

    @field_validator("url")
    @classmethod
    def _is_an_address_without_a_secret(cls, url: str | None) -> str | None:
        if url is not None and (problem := url_problem(url) or secret_problem(url)):
            # The loader adds what it got where a sentence does not say it.
            shown = (
                without_secret(url) if url_problem(url) is None else "an address, not shown here"
            )
            raise ValueError(problem if "(got " in problem else f"{problem} (got {shown})")
        return url

    @field_validator("record")
    @classmethod
    def _is_a_place_without_a_secret(cls, record: str | None) -> str | None:
        if record is not None and "://" not in record:
            raise ValueError(f"must be an address like s3://bucket/folder (got {record!r})")
        if record is not None and redact(record) != record:
            raise ValueError(
                "holds a secret, which others would read here: leave it out; the package behind the address "
                "finds credentials in its own files and environment variables"
            )
        return record


def url_problem(url: str) -> str | None:
    """Why this is no address of a database server; never with the address' secrets in it."""
    scheme = url.partition("://")[0].lower()
    if "://" not in url or scheme not in SCHEMES:
        shown = (
            repr(scheme) if "://" in url and re.fullmatch(r"[\w+.-]{1,40}", scheme) else "no scheme"
        )
        advice = "; without a storage the study keeps study.db in its folder" * ("sqlite" in scheme)
        return (
            "must be postgresql://user@host/database or mysql://user@host/database "
            f"(got {shown}){advice}"
        )
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port
    except ValueError:  # its own words would show the password
        return (
            "not a valid address; special characters in a user name or password must be "
            "percent-encoded (/ is %2F, @ is %40, # is %23)"
        )
    if len(parts.path) <= 1:
        return "names no database: postgresql://user@host/database"
    return None


def secret_problem(url: str) -> str | None:
    """Why this address may not stand where others read it: it holds a password."""
    parts = urllib.parse.urlsplit(url)
    queried = [key for key, _ in urllib.parse.parse_qsl(parts.query) if _SECRET.fullmatch(key)]
    if parts.password is None and not queried:
        return None
    return f"holds a password, which others would read here: {HOW_TO_GIVE_A_SECRET}"


def without_secret(url: str) -> str:
    """The same address without password and secret query values."""
    parts = urllib.parse.urlsplit(url)
    user, at, place = parts.netloc.rpartition("@")
    query = [
        (key, value)
        for key, value in urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
        if not _SECRET.fullmatch(key)
    ]
    netloc = f"{user.partition(':')[0]}{at}{place}"
    # Not urlunsplit, which drops the two slashes of an address without a host (a local socket).
    text = f"{parts.scheme}://{netloc}{parts.path}"
    return text + (f"?{urllib.parse.urlencode(query, safe='/')}" if query else "")


def secrets_of(url: str) -> tuple[str, ...]:
    """What must be shown nowhere: password and secret query values, as written and decoded."""
    parts = urllib.parse.urlsplit(url)
    written = [parts.netloc.rpartition("@")[0].partition(":")[2]]
    for pair in parts.query.split("&"):
        key, _, value = pair.partition("=")
        if _SECRET.fullmatch(key):
            written.append(value)
    both = [
        form
        for text in written
        for form in (text, urllib.parse.unquote_plus(text), urllib.parse.unquote(text))
    ]
    return tuple(sorted({text for text in both if text}, key=len, reverse=True))
