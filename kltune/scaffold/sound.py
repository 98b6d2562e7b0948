"""A draft in, a loaded spec out, or all that is wrong with it in one message; nothing is written."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pydantic import ValidationError

from kltune.errors import SpecError
from kltune.scaffold.draft import SpecDraft, render
from kltune.scaffold.examples import grounded, missing_files
from kltune.scaffold.start import Answers, start_draft
from kltune.spec.checks import check_paths
from kltune.spec.load import LoadedSpec
from kltune.spec.problems import describe, message
from kltune.spec.study import StudySpec


def checked(draft: SpecDraft, path: Path) -> LoadedSpec:
    """The spec of the draft as it would be loaded from ``path``.

    Raises:
        SpecError: the draft is no sound spec.
    """
    try:
        spec = StudySpec.model_validate(draft.data())
    except ValidationError as error:
        problems = describe(error.errors(include_url=False), StudySpec)
        raise SpecError(message(path, problems)) from None
    return LoadedSpec(spec=spec, text=render(draft), path=path)


def check_answers(answers: Answers, spec_path: Path) -> None:
    """Refuse answers that would not make a spec whose model, prompts and functions are there.

    Files that `missing_files` would make count as there: they are tried in a scratch folder.

    Raises:
        SpecError: what is wrong.
    """
    checked(start_draft(answers), spec_path)
    with tempfile.TemporaryDirectory() as scratch:
        places: dict[Path, Path] = {}
        for number, (path, text) in enumerate(missing_files(answers, spec_path).items()):
            places[path] = Path(scratch) / str(number) / path.name
            places[path].parent.mkdir()
            places[path].write_text(text, encoding="utf-8")
        check_paths(checked(start_draft(grounded(answers, places, spec_path)), spec_path))
