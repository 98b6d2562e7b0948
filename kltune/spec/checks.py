"""A loaded spec in; out: an error for paths and functions that are not there.

Everything here is cheap: files and arithmetic, no model, no import of the user's code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from importlib import util
from pathlib import Path
from typing import Final

from kltune.errors import SpecError
from kltune.spec.load import LoadedSpec, resolve_path
from kltune.spec.model import BUILTIN_MODELS, REBUILD
from kltune.spec.problems import Problem, message
from kltune.spec.prompts import ENDINGS, PromptsSpec, format_of
from kltune.spec.scorers import functions_of
from kltune.spec.task import BuiltinTask

_KLTUNE: Final = Path(__file__).parents[1]
_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_WEIGHTS: Final = "*.safetensors"


def check_paths(loaded: LoadedSpec) -> None:
    """Refuse a spec that names a model, prompts or functions that are not there.

    Also refused: gold and proxy that are the same function.

    Raises:
        SpecError: all of it in one message.
    """
    problems = [*_model_problems(loaded), *_task_problems(loaded)]
    if problems:
        raise SpecError(message(loaded.path, problems))


def _model_problems(loaded: LoadedSpec) -> list[Problem]:
    model = loaded.spec.model
    kind, colon, name = model.base.partition(":")
    if colon and kind == "builtin":
        text = _builtin_problem(name)
    elif colon and kind == "package":
        text = _package_problem(name, model.gguf_file)
    else:
        text = _folder_problem(loaded)
    return [] if text is None else [Problem("model.base", text)]


def _builtin_problem(name: str) -> str | None:
    if name not in BUILTIN_MODELS:
        return f"no built-in model {name!r}; built in: {', '.join(BUILTIN_MODELS)}"
    if not (_KLTUNE / BUILTIN_MODELS[name] / "config.json").is_file():
        return f"the weights of {name!r} are missing; `{REBUILD[name]}` makes them"
    return None


def _package_problem(name: str, gguf_file: str | None) -> str | None:
    if not name.isidentifier():
        return f"package:NAME needs the name of an importable package (got {name!r})"
    found = None if name == "__main__" else util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        return f"the package {name!r} is not installed here: pip install {name.replace('_', '-')}"
    folders = [Path(place) for place in found.submodule_search_locations]
    pattern = gguf_file or "*.gguf"
    files = sorted(path for folder in folders for path in folder.rglob(pattern))
    if not files:
        return f"the package {name!r} holds no {pattern}"
    if len(files) > 1:
        names = ", ".join(path.name for path in files)
        return (
            f"the package {name!r} holds several GGUF files; name one as model.gguf_file: {names}"
        )
    return None


def _folder_problem(loaded: LoadedSpec) -> str | None:
    model = loaded.spec.model
    folder = resolve_path(loaded, model.base)
    if folder.is_file():
        return f"is a file; name its folder, and a GGUF by model.gguf_file (got {model.base!r})"
    if not folder.exists():
        return None if _is_hub_id(loaded) else f"no such folder: {folder}"
    if model.gguf_file is not None:
        is_there = (folder / model.gguf_file).is_file()
        return None if is_there else f"no {model.gguf_file} in {folder}"
    if not (folder / "config.json").is_file():
        return f"no config.json in {folder}: not a Transformers model (for a GGUF, set gguf_file)"
    if not any(folder.glob(_WEIGHTS)):
        pickled = sorted(path.name for path in folder.glob("*.bin"))
        why = (
            f"; {pickled[0]} is a pickle, which can run any code when it is read" if pickled else ""
        )
        return f"no weights ({_WEIGHTS}) in {folder}{why}"
    return None


def _is_hub_id(loaded: LoadedSpec) -> bool:
    """Whether an absent folder can be meant as a hub id: ``name`` or ``owner/name``."""
    base = loaded.spec.model.base
    if _HUB_ID.fullmatch(base) is None:
        return False
    # models/mine with a folder models/ beside it is a folder mistyped.
    return "/" not in base or not resolve_path(loaded, base.split("/")[0]).is_dir()


def _task_problems(loaded: LoadedSpec) -> list[Problem]:
    task = loaded.spec.task
    if isinstance(task, BuiltinTask):
        names = sorted(path.parent.name for path in _KLTUNE.glob("tasks/*/task.py"))
        text = f"no built-in task {task.builtin!r}; built in: {', '.join(names)}"
        return [] if task.builtin in names else [Problem("task", text)]
    problems = [Problem("task.prompts", text) for text in _prompts_problems(loaded, task.prompts)]
    golds = {"task.gold": task.gold, **{f"task.golds.{n}": f for n, f in task.golds.items()}}
    for path, reward in {"task.proxy": task.proxy, **golds}.items():
        for spec in functions_of(reward):
            problems += [Problem(path, text) for text in _function_problems(loaded, spec.function)]
    proxies = [spec.function for spec in functions_of(task.proxy)]
    for path, gold in golds.items():
        for spec in functions_of(gold):
            texts = _sameness_problems(loaded, proxies, spec.function)
            problems += [Problem(path, text) for text in texts]
    return problems


def _prompts_problems(loaded: LoadedSpec, prompts: str | PromptsSpec) -> list[str]:
    text = prompts if isinstance(prompts, str) else prompts.path
    if text is None:
        return []  # a data set of the hub
    path = resolve_path(loaded, text)
    given = None if isinstance(prompts, str) else prompts.format
    written = given or format_of(path)
    if written is None:
        is_absent = not path.suffix and not path.exists()
        return [f"no such file: {path}" if is_absent else f"must be {ENDINGS} (got {text!r})"]
    if written in ("parquet", "datasets"):
        return [] if path.exists() else [f"no such file: {path}"]
    try:
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return [f"no such file: {path}"]
    except UnicodeDecodeError as error:
        return [f"{path} is not UTF-8 text (byte {error.start})"]
    except OSError as error:
        return [f"{path} can't be read: {error.strerror}"]
    return [] if content.strip() else [f"{path} holds no prompts"]


def _function_problems(loaded: LoadedSpec, reference: str) -> list[str]:
    source, _, name = reference.rpartition(":")
    if not source.endswith(".py"):
        return []  # a module: only importing it can tell
    path = resolve_path(loaded, source)
    try:
        names = _defined_names(path)
    except FileNotFoundError:
        return [f"no such file: {path}"]
    except (SyntaxError, ValueError) as error:
        return [f"{path} is not Python: {error}"]
    except OSError as error:
        return [f"{path} can't be read: {error.strerror}"]
    if names is not None and name not in names:
        return [f"{path} defines no {name!r} (it defines {', '.join(sorted(names)) or 'nothing'})"]
    return []


def _defined_names(path: Path) -> set[str] | None:
    """Functions and variables at the top of a Python file; none where only running it can tell."""
    names: set[str] = set()
    for node in ast.parse(path.read_bytes()).body:
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name for alias in aliases}
            case ast.Expr():
                pass
            case _:
                return None  # a condition, a loop, a with: names may come from inside
    return None if "*" in names else names


def _sameness_problems(loaded: LoadedSpec, proxies: Sequence[str], gold: str) -> list[str]:
    if _place(loaded, gold) not in [_place(loaded, proxy) for proxy in proxies]:
        return []
    return [
        "is the same function as task.proxy; gold must be a judgement that training never sees "
        f"(got {gold!r} for both)"
    ]


def _place(loaded: LoadedSpec, reference: str) -> tuple[str, str]:
    source, _, name = reference.rpartition(":")
    if source.endswith(".py"):
        source = str(resolve_path(loaded, source).resolve())
    return source, name
