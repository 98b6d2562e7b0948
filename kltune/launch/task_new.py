"""``kltune task new``: the name of a task in, a folder with prompts, scorers and a spec that runs out."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kltune.errors import ExitCode, RunError, SpecError
from kltune.launch.init import study_name
from kltune.launch.saying import say
from kltune.metrics.jsonl import encode
from kltune.scaffold.sound import checked
from kltune.scaffold.task_files import SPEC, Kind, draft_of, task_files
from kltune.screen.ending import near

_SAYS: Final = ("scores and milliseconds of a few answers", "would its numbers mean anything?")


@dataclass(frozen=True, slots=True)
class NewTask:
    """The flags of ``kltune task new``."""

    folder: Path
    """To be made; its last part is the task's name."""
    kind: Kind = "function"
    as_json: bool = False


def run_task_new(request: NewTask) -> ExitCode:
    """Make the folder and say what comes next.

    Raises:
        SpecError: something is there already, or the name is none; nothing was written.
        RunError: a file can't be written.
    """
    folder = request.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SpecError(f"NAME: {folder} is there already; give another name, or remove it")
    name = study_name(folder / SPEC)
    checked(draft_of(name, request.kind), folder / SPEC)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in task_files(name, str(folder), request.kind).items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"{error.filename}: it can't be written: {error.strerror}") from error
    spec = shlex.quote(str(near(folder / SPEC)))
    steps = (f"kltune task test {spec}", f"kltune check {spec}")
    if request.as_json:
        sys.stdout.write(encode({"spec": folder / SPEC, "next": steps}) + "\n")
        return ExitCode.DONE
    for file in task_files(name, str(folder), request.kind):
        say(f"wrote {near(folder / file)}")
    say("Next, before and after you put in your own prompts, rewards and model:")
    width = max(map(len, steps))
    for step, meaning in zip(steps, _SAYS, strict=True):
        say(f"  {step:{width}}   # {meaning}")
    return ExitCode.DONE
