"""A file or module name of the user in, the imported module out; what fails is said by file and line."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from kltune.errors import EnvironmentMissingError, KltuneError, SpecError
from kltune.tasks.calls_exit import ProcessEndError, kept_alive


def import_file(path: Path, reference: str) -> ModuleType:
    """Import the Python file ``path``, once per content; its folder is importable while it loads.

    Raises:
        SpecError: the file can't be read, or its code fails.
        EnvironmentMissingError: it imports a package that is not installed.
    """
    path = path.resolve()
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SpecError(f"{reference}: {path} can't be read ({error.strerror})") from error
    # The name carries the content: gold and proxy of one file share one module, an edited file is a new one.
    digest = hashlib.sha256(bytes(path) + b"\n" + content).hexdigest()
    name = f"kltune_user_{digest[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SpecError(f"{reference}: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a module up by its name
    try:
        with _importable([path.parent]), _explained(reference):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def import_name(name: str, base_folders: Sequence[Path], reference: str) -> ModuleType:
    """Import the module ``name`` from ``sys.path``, then from ``base_folders``.

    Raises:
        SpecError: there is no such module, or its code fails.
        EnvironmentMissingError: it imports a package that is not installed.
    """
    if not all(part.isidentifier() for part in name.split(".")):
        raise SpecError(f"{reference}: {name!r} is not a module name (like package.module)")
    try:
        with _importable(base_folders), _explained(reference):
            return importlib.import_module(name)
    except EnvironmentMissingError as error:
        missing = getattr(error.__cause__, "name", None)
        if missing is None or not (name == missing or name.startswith(f"{missing}.")):
            raise
        looked = ", ".join(["installed packages", *map(str, base_folders)])
        raise SpecError(
            f"{reference}: there is no module {missing!r} (looked in {looked})"
        ) from error


@contextmanager
def _importable(folders: Sequence[Path]) -> Generator[None]:
    """Put ``folders`` at the end of ``sys.path``, so that no file there hides an installed package."""
    added = [str(folder.resolve()) for folder in folders]
    added = [folder for folder in added if folder not in sys.path]
    sys.path.extend(added)
    # a file written a moment ago may be missing from the finders' caches
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for folder in added:
            sys.path.remove(folder)


@contextmanager
def _explained(reference: str) -> Generator[None]:
    try:
        with kept_alive():
            yield
    except KltuneError:
        raise
    except ModuleNotFoundError as error:
        raise EnvironmentMissingError(
            f"{reference}: it imports {error.name!r}, which is not installed here"
        ) from error
    except SyntaxError as error:
        raise SpecError(
            f"{reference}: not valid Python ({error.filename}, line {error.lineno}: {error.msg})"
        ) from error
    except (Exception, SystemExit) as error:
        # A user's module may raise anything while it loads; here is the one place that knows whose it is.
        # Who called os._exit stands before what refused it.
        innermost = -2 if isinstance(error, ProcessEndError) else -1
        last = traceback.extract_tb(error.__traceback__)[innermost]
        raise SpecError(
            f"{reference}: importing it failed ({last.filename}, line {last.lineno}: "
            f"{type(error).__name__}: {error})"
        ) from error
