"""A study's folder and a path in it in; an error out where a link leads the path out of the folder."""

from __future__ import annotations

from pathlib import Path

from kltune.errors import StudyError


def refuse_outside(study_path: Path, *paths: Path) -> None:
    """Refuse paths of a study that don't lie in it; those that are not there (yet) do.

    A study may be somebody else's: reading it must not read, and going on with it not overwrite, what lies elsewhere.
    The folder of the whole study may be a link.

    Raises:
        StudyError: a link leads out of the folder.
    """
    home = study_path.resolve()
    for path in paths:
        try:
            place = path.resolve()
        except (OSError, RuntimeError) as error:  # links in a circle
            raise StudyError(f"{path}: can't be followed ({error})") from error
        if not place.is_relative_to(home):
            raise StudyError(
                f"{path}: is a link that leads out of the study's folder, and is not followed; put what it leads to "
                "in its place (the folder of the whole study may be a link)"
            )
