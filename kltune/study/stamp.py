"""An Optuna study in; out: whose it is, by what kltune wrote into it, or why it is not this folder's or this spec's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna

from kltune.errors import StudyError
from kltune.spec.study import StudySpec
from kltune.study.address import Address, read_home
from kltune.study.place import STORAGE
from kltune.study.same_spec import FREE_TO_CHANGE, differences, kept

SCHEMA = 1
"""Version of the attributes that kltune keeps in the Optuna study."""

_ATTR_SPEC = "kltune.spec"
_ATTR_DIGEST = "kltune.spec_digest"
_ATTR_SCHEMA = "kltune.schema"
ATTR_FOLDER = "kltune.folder"
"""Where the study on a server has its folder."""
_ATTR_HOME = "kltune.home"
"""What the study folder's storage.json says, too: whose study it is, where several have one name."""


def stamp(
    study: optuna.Study, spec: StudySpec, study_path: Path | None = None, home: str | None = None
) -> None:
    """Write down whose study it is; on a server, also its folder and ``home``, as the folder's storage.json says."""
    if study_path is not None:
        study.set_user_attr(ATTR_FOLDER, str(study_path.absolute()))
        study.set_user_attr(_ATTR_HOME, home)
    study.set_user_attr(_ATTR_SPEC, kept(spec))
    study.set_user_attr(_ATTR_DIGEST, digest(spec))
    study.set_user_attr(_ATTR_SCHEMA, SCHEMA)


def is_blank(study: optuna.Study) -> bool:
    """Whether the process that created the study died before it had written down whose it is."""
    is_stamped = {_ATTR_SPEC, _ATTR_DIGEST, _ATTR_SCHEMA} <= study.user_attrs.keys()
    return not is_stamped and not study.get_trials(deepcopy=False)


def refuse_without_its_trials(study_path: Path, address: Address) -> None:
    """A record without the study that says which trials count is not gone on with."""
    if (study_path / STORAGE).is_file() and any((study_path / "trials").glob("*")):
        raise StudyError(
            f"{study_path}: {address.shown} no longer holds its study {address.name!r}, so nobody knows "
            "which trials count; restore the database, or run with --fresh, which moves this study aside "
            "(`kltune report` still reads the record)"
        )


def check_home(study_path: Path, attrs: Mapping[str, Any], address: Address) -> None:
    """Refuse a study of the same name that was begun in another folder: its record is not here."""
    home, theirs = read_home(study_path), attrs.get(_ATTR_HOME)
    if theirs is None or home == theirs:
        return
    raise StudyError(
        f"{address.shown} holds a study {address.name!r} that was begun in another folder than {study_path}: "
        "to work on that one, give its folder by --study (all workers write into the same); for a study of "
        "your own, give the spec another name, or run with --fresh"
    )


def check_same_spec(study_path: Path, attrs: Mapping[str, Any], spec: StudySpec) -> None:
    """Raise `StudyError` where the study was begun with another spec: every difference is named, old and new."""
    schema = attrs.get(_ATTR_SCHEMA)
    if not isinstance(schema, int) or _ATTR_SPEC not in attrs:
        raise StudyError(
            f"{study_path}: its database was not made by kltune; choose another folder by --study, "
            "or on a server another name in the spec"
        )
    if schema != SCHEMA:
        raise StudyError(
            f"{study_path}: made with schema {schema} of kltune, this one reads {SCHEMA}; "
            "upgrade kltune, or run with --fresh, which moves this study aside"
        )
    changed = [f"  {sentence}" for sentence in differences(attrs[_ATTR_SPEC], kept(spec))]
    if changed:
        raise StudyError(
            f"{study_path}: this study belongs to another spec ({len(changed)} difference(s))\n"
            + "\n".join(changed)
            + f"\nOnly {', '.join(FREE_TO_CHANGE)} and guards that stop nothing may change in a study. Use another --study, or "
            "--fresh, which moves the old one aside."
        )


def digest(spec: StudySpec) -> str:
    """A fingerprint of everything that must stay the same within a study."""
    return hashlib.sha256(json.dumps(kept(spec), sort_keys=True).encode()).hexdigest()
