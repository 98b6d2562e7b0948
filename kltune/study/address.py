"""A study folder, a spec, a flag and the environment in; out: in which database the study's trials are kept.

A secret is in an address only to connect with; it is never shown and never written.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kltune.errors import SpecError, StudyError
from kltune.metrics.jsonl import read_json, write_json
from kltune.spec.storage import (
    SCHEMES,
    secret_problem,
    secrets_of,
    url_problem,
    without_secret,
)
from kltune.spec.study import StudySpec
from kltune.study.place import DATABASE, STORAGE

VARIABLE: Final = "KLTUNE_STORAGE"
_PORTS: Final = {"postgresql": 5432, "mysql": 3306}
_HIDDEN: Final = "***"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a study's trials are kept, and under which name."""

    url: str | None = field(repr=False)
    """Of a database server, with its secret if one was given; none: study.db in the study folder."""
    name: str
    """Of the study within the database."""

    @property
    def is_server(self) -> bool:
        """Whether it is a server, which workers on other machines can reach."""
        return self.url is not None

    @property
    def shown(self) -> str:
        """What people may read: no password."""
        return DATABASE if self.url is None else without_secret(self.url)

    @property
    def kind(self) -> str:
        """``sqlite``, ``postgresql`` or ``mysql``."""
        return "sqlite" if self.url is None else SCHEMES[self.url.partition("://")[0].lower()]

    def hide(self, text: str) -> str:
        """The text without this address' secrets, however it came by them."""
        for secret in () if self.url is None else secrets_of(self.url):
            text = text.replace(secret, _HIDDEN)
        return text

    def __str__(self) -> str:
        return f"{self.shown}#{self.name}" if self.is_server else self.shown


def resolve_address(
    study_path: Path,
    spec: StudySpec,
    given: str | None,
    environ: Mapping[str, str],
    *,
    fresh: str | None = None,
) -> Address:
    """Decide where the study is kept: ``given`` (the flag), the spec, KLTUNE_STORAGE, storage.json, else study.db.

    A study that is there stays where it was begun; the environment then adds the password alone.
    ``fresh``: the study is begun anew, on a server under a name of its own that ends in this.

    Raises:
        SpecError: the flag holds a password, or an address is none of a server.
        StudyError: flag or spec name another place than the one in which the study was begun.
    """
    if given is not None and (problem := url_problem(given) or secret_problem(given)):
        raise SpecError(f"--storage: {problem}")
    ambient = _ambient(environ)
    name = spec.name if fresh is None else f"{spec.name}.{fresh}"
    wanted = given or spec.storage.url
    noted = None if fresh is not None else read_address(study_path, environ)
    if noted is not None:
        if wanted is not None and not (noted.url and _is_same_place(wanted, noted.url)):
            source = "--storage" if given else "storage.url"
            raise StudyError(
                f"{study_path}: this study is kept in {noted.shown}, and {source} names "
                f"{without_secret(wanted)}; leave it out to go on, or begin anew by --fresh"
            )
        return noted
    url = wanted or ambient
    if url is None:
        return Address(None, spec.name)
    return Address(_with_secret_of(url, ambient), name)


def read_address(study_path: Path, environ: Mapping[str, str]) -> Address | None:
    """Where the study in the folder was begun; none where none was. The environment adds the password alone.

    Raises `StudyError` for a storage.json that can't be read.
    """
    path = study_path / STORAGE
    if not path.is_file():
        is_here = (study_path / DATABASE).is_file() and (study_path / DATABASE).stat().st_size > 0
        return Address(None, "") if is_here else None
    try:
        facts: dict[str, Any] = read_json(path)
        url, name = facts["url"], facts["study"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StudyError(f"{path}: can't be read ({type(error).__name__}: {error})") from error
    if not isinstance(url, str) or not isinstance(name, str) or url_problem(url):
        raise StudyError(f"{path}: names no database server; it is written by kltune sweep alone")
    return Address(_with_secret_of(url, _ambient(environ)), name)


def note_address(study_path: Path, address: Address, home: str) -> None:
    """Write storage.json, by which the folder alone tells where its trials are; not its password.

    ``home``: what the study on the server says, too, so that two folders don't take it for theirs.
    """
    if address.url is not None:
        url = without_secret(address.url)
        facts = {"schema": 1, "url": url, "study": address.name, "home": home}
        write_json(study_path / STORAGE, facts)


def read_home(study_path: Path) -> str | None:
    """What `note_address` wrote; none where it did not."""
    try:
        facts: dict[str, Any] = read_json(study_path / STORAGE)
    except (OSError, ValueError):
        return None
    home = facts.get("home")
    return home if isinstance(home, str) else None


def with_ambient_secret(url: str, environ: Mapping[str, str], name: str = "") -> Address:
    """An address that was kept without its password, with the one that the environment has for it."""
    return Address(_with_secret_of(url, _ambient(environ)), name)


def split_study_url(text: str) -> tuple[str, str]:
    """``postgresql://user@host/database#study`` as address and name of the study.

    Raises `SpecError` where it is no such thing, or holds a password.
    """
    url, _, name = text.partition("#")
    problem = url_problem(url) or secret_problem(url)
    if problem is None and not name:
        problem = "names no study: postgresql://user@host/database#study"
    if problem is not None:
        raise SpecError(f"STUDY: {problem}")
    return url, urllib.parse.unquote(name)


def address_of_url(text: str, environ: Mapping[str, str]) -> Address:
    """The address that `split_study_url` reads, with the password that the environment has for it."""
    url, name = split_study_url(text)
    return with_ambient_secret(url, environ, name)


def _ambient(environ: Mapping[str, str]) -> str | None:
    url = environ.get(VARIABLE) or None
    if url is not None and (problem := url_problem(url)):
        raise SpecError(f"{VARIABLE}: {problem}")
    return url


def _with_secret_of(url: str, ambient: str | None) -> str:
    """``url``, or the environment's address where that is the same place, which may hold the password."""
    return ambient if ambient is not None and _is_same_place(url, ambient) else url


def _is_same_place(one: str, other: str) -> bool:
    """Whether both mean one database, as one user where both name one."""
    (place, user), (other_place, other_user) = _place(one), _place(other)
    return place == other_place and (user == other_user or None in (user, other_user))


def _place(url: str) -> tuple[tuple[object, ...], str | None]:
    parts = urllib.parse.urlsplit(url)
    kind = SCHEMES[parts.scheme.lower()]
    query = urllib.parse.parse_qs(parts.query)
    host = parts.hostname or ",".join(query.get("host", []))
    place = (kind, host, parts.port or _PORTS[kind], urllib.parse.unquote(parts.path))
    return place, parts.username
