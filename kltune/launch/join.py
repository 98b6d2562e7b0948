"""``kltune worker``: a request in, an exit code out; what can't be joined is refused before anything heavy loads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kltune.errors import ExitCode, SpecError, StudyError
from kltune.launch import signals
from kltune.launch.request import JoinRequest
from kltune.launch.saying import say
from kltune.launch.stdout import reserved_stdout
from kltune.launch.threads import keep_memory, share_cores
from kltune.metrics.jsonl import read_json
from kltune.spec.checks import check_paths
from kltune.spec.load import LoadedSpec, from_resolved, load_spec, with_overrides
from kltune.study.same_spec import FREE_TO_CHANGE

RESOLVED = "resolved.json"


@dataclass(frozen=True, slots=True)
class Entrance:
    """The way into a study."""

    study_path: Path
    given: LoadedSpec | None
    """The spec, where one was named: who is first makes the study from it."""


def run_join(request: JoinRequest) -> ExitCode:
    """Work on the study of a request until it is settled.

    Raises:
        SpecError: a flag or the spec; nothing was started.
        StudyError: no study is there, it belongs to another spec, or another command is at work in it.
        EnvironmentMissingError: this machine lacks what the study needs.
    """
    entrance = find_entrance(request)
    share_cores()
    keep_memory()
    stop = signals.StopRequest(
        None, lambda reason: say(f"{reason}: stopping; trials that run are saved ...")
    )
    try:
        with stop.listening(), reserved_stdout(is_reserved=request.as_json) as result:
            # torch, Optuna and the rest take seconds to import: not before the way in is known.
            from kltune.launch.join_session import run_worker

            return run_worker(request, entrance, stop, result)
    except KeyboardInterrupt:
        say("stopped at once; finished trials and the last checkpoints are kept")
        return ExitCode.INTERRUPTED


def find_entrance(request: JoinRequest) -> Entrance:
    """Find the study that a request means: a folder, a spec, or an address.

    Raises:
        SpecError: a spec or flag that is wrong.
        StudyError: nothing is there.
    """
    target = request.target
    if "://" in target:
        return Entrance(_folder_of_address(request), None)
    path = Path(target)
    if path.is_file() and (path.absolute().parent / RESOLVED).is_file():
        path = path.parent  # the study's own copy of its spec
    if path.is_dir():
        if request.study_path is not None and not _is_same(request.study_path, path):
            raise SpecError(f"--study: STUDY is a study folder already ({path}); leave --study out")
        refuse_fixed(request.flags)
        return Entrance(path, None)
    if not path.is_file():
        raise StudyError(
            f"{path}: no such study folder and no such spec (a sweep that has just begun makes its folder once the "
            "spec is checked; name the spec instead of the folder, and the worker waits for it)"
        )
    spec = load_spec(path, request.flags)
    check_paths(spec)
    return Entrance(request.study_path or Path("studies") / spec.spec.name, spec)


def spec_of_folder(study_path: Path, request: JoinRequest, given: LoadedSpec | None) -> LoadedSpec:
    """The spec that the study's other members go by, with the flags that are free on top.

    ``given``: the spec that was named; names in it are looked up from where it lies.

    Raises:
        StudyError: the folder holds no study.
        SpecError: a flag that can't be used.
    """
    path = study_path / RESOLVED
    if not path.is_file():
        raise StudyError(f"{study_path}: no study to work on (no {RESOLVED} in it)")
    flags = tuple(flag for flag in request.flags if is_free(flag))
    spec = with_overrides(from_resolved(read_json(path)), flags)
    if given is not None:
        return LoadedSpec(spec, given.text, given.path, given.overrides)
    text_path = study_path / "spec.yaml"
    text = text_path.read_text(encoding="utf-8") if text_path.is_file() else ""
    return LoadedSpec(spec, text, text_path, request.overrides)


def refuse_fixed(flags: tuple[str, ...]) -> None:
    """Raise `SpecError` where a flag changes what is part of every trial of a study."""
    fixed = [flag.partition("=")[0] for flag in flags if not is_free(flag)]
    if fixed:
        raise SpecError(
            f"--set: {', '.join(fixed)} can't be changed in a study that is there; free to change: "
            f"{', '.join(FREE_TO_CHANGE)}"
        )


def is_free(flag: str) -> bool:
    """Whether ``key=value`` is of a part that may change within a study."""
    key = flag.partition("=")[0].strip()
    return any(key == free or key.startswith(f"{free}.") for free in FREE_TO_CHANGE)


def _folder_of_address(request: JoinRequest) -> Path:
    """Where the study of a database lies, as ``--study`` says, else as the database has it."""
    import os

    from kltune.study.address import address_of_url
    from kltune.study.whereabouts import folder_of

    if request.storage is not None:
        raise SpecError("--storage: STUDY is an address already; leave --storage out")
    refuse_fixed(request.flags)
    address = address_of_url(request.target, os.environ)
    folder = request.study_path or folder_of(address)
    if folder is None or not folder.is_dir():
        where = "is not noted in the database" if folder is None else f"{folder} is not there"
        raise StudyError(
            f"{address}: its study folder {where}; all members share one folder: name it by --study PATH"
        )
    return folder


def _is_same(one: Path, other: Path) -> bool:
    return one.exists() and one.samefile(other)
