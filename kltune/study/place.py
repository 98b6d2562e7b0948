"""A path in; out: whether a study may be there, a refusal, or an old study's new place."""

from __future__ import annotations

from pathlib import Path

from kltune.errors import StudyError

DATABASE = "study.db"
UNFINISHED = f"{DATABASE}.new"
"""The database while it is made; it gets its name when all is in it."""
STORAGE = "storage.json"
"""Where the trials are, of a study that is kept on a database server."""
LOCK = ".lock"
TURN = ".turn"
_OF_A_STUDY = {DATABASE, STORAGE, "resolved.json", "spec.yaml", "trials", "reference.json"}


def is_foreign(study_path: Path) -> bool:
    """Whether the folder holds things, but none of a study of kltune."""
    inside = _inside(study_path)
    return bool(inside) and not inside & _OF_A_STUDY


def is_empty(study_path: Path) -> bool:
    """Whether nothing is there, or a folder that at most was locked."""
    return not study_path.exists() or (study_path.is_dir() and not _inside(study_path))


def holds_study(study_path: Path) -> bool:
    """Whether the folder has its study: in its own database, or on a server that it names."""
    return any((study_path / name).is_file() for name in (STORAGE, DATABASE))


def check_folder(study_path: Path) -> None:
    """Raise `StudyError` where the path is a file, a folder of something else, or a study without its database."""
    if study_path.exists() and not study_path.is_dir():
        raise StudyError(f"{study_path}: is a file, not a study folder")
    inside = _inside(study_path)
    if not inside or DATABASE in inside or STORAGE in inside:
        return
    if not is_foreign(study_path):
        raise StudyError(
            f"{study_path}: holds a study but its {DATABASE} is gone, so nobody knows which trials "
            "count; put it back from a copy, or run with --fresh, which moves this study aside "
            "(`kltune report` still reads the record)"
        )
    raise StudyError(
        f"{study_path}: is not empty and no study of kltune ({', '.join(sorted(inside)[:4])}); "
        "choose another folder by --study"
    )


def _inside(study_path: Path) -> set[str]:
    names = {entry.name for entry in study_path.iterdir()} if study_path.is_dir() else set[str]()
    names -= {LOCK, TURN, ".mirror", "workers", ".gitkeep"}
    return {name for name in names if not name.startswith(UNFINISHED)}
