"""A loaded spec in; out: an error for what can't run, a list of warnings for what probably isn't meant.

Everything here is cheap: files and arithmetic, no model, no import of the user's code.
"""

from __future__ import annotations

import ast
import re
from importlib import util
from pathlib import Path
from typing import Final

from kltune.errors import SpecError
from kltune.spec.load import LoadedSpec, resolve_path
from kltune.spec.problems import Problem, message
from kltune.spec.study import StudySpec
from kltune.spec.task import BuiltinTask, TaskSpec
from kltune.spec.trial import CONTROLLER_CLIP, ControllerKind, KLUnit

INERT_BELOW: Final = 1.1
"""A controller is inert when it can't move beta by this factor within a trial."""

_HIGH_PER_TOKEN: Final = 2.0
"""Nats per token that no useful policy reaches: most text has less entropy than that."""

_KLTUNE: Final = Path(__file__).parents[1]
_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_WEIGHTS: Final = ("*.safetensors", "*.bin")


def check_paths(loaded: LoadedSpec) -> None:
    """Refuse a spec that names a model, prompts or functions that are not there.

    Also refused: gold and proxy that are the same function.

    Raises:
        SpecError: all of it in one message.
    """
    problems = [*_model_problems(loaded), *_task_problems(loaded)]
    if problems:
        raise SpecError(message(loaded.path, problems))


def find_doubts(spec: StudySpec) -> list[str]:
    """What would run but is probably not meant, one sentence each, the field first."""
    return [
        str(doubt) for doubt in (*_horizon_doubts(spec), *_kl_doubts(spec), *_step_doubts(spec))
    ]


def inert_horizon(rows: int, steps: int) -> float:
    """The horizon in sequences above which the proportional controller is inert.

    Beta moves by at most 1 + 0.2 x rows / horizon per step (Ziegler et al. 2019), so by that to
    the power of ``steps`` in a trial.
    """
    per_step = INERT_BELOW ** (1 / steps) - 1
    return CONTROLLER_CLIP * rows / per_step


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
    # A built-in model is one that kltune can rebuild.
    names = sorted(p.stem for p in _KLTUNE.glob("rebuild/*.py") if p.stem != "__init__")
    if name not in names:
        return f"no built-in model {name!r}; built in: {', '.join(names)}"
    if not (_KLTUNE / "tasks" / name / "weights" / "base" / "config.json").is_file():
        return f"the weights of {name!r} are missing; `kltune task rebuild {name}` makes them"
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
    if not any(path for pattern in _WEIGHTS for path in folder.glob(pattern)):
        return f"no weights ({' or '.join(_WEIGHTS)}) in {folder}"
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
    functions = {"task.proxy": task.proxy, "task.gold": task.gold}
    for path, function in functions.items():
        if isinstance(function, str):
            problems += [Problem(path, text) for text in _function_problems(loaded, function)]
    return [*problems, *_sameness_problems(loaded, task)]


def _prompts_problems(loaded: LoadedSpec, text: str) -> list[str]:
    path = resolve_path(loaded, text)
    if path.suffix not in (".jsonl", ".txt"):
        return [f"must be a .jsonl or a .txt file (got {text!r})"]
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
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
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


def _sameness_problems(loaded: LoadedSpec, task: TaskSpec) -> list[Problem]:
    if not isinstance(task.proxy, str) or _place(loaded, task.proxy) != _place(loaded, task.gold):
        return []
    text = (
        "is the same function as task.proxy; gold must be a judgement that training never sees "
        f"(got {task.gold!r} for both)"
    )
    return [Problem("task.gold", text)]


def _place(loaded: LoadedSpec, reference: str) -> tuple[str, str]:
    source, _, name = reference.rpartition(":")
    if source.endswith(".py"):
        source = str(resolve_path(loaded, source).resolve())
    return source, name


def _horizon_doubts(spec: StudySpec) -> list[Problem]:
    horizon = spec.search.horizon
    if horizon is None or ControllerKind.PROPORTIONAL.value not in spec.search.controller.values():
        return []
    rows, steps = spec.trainer.rows, spec.trainer.steps
    bound = inert_horizon(rows, steps)
    low, high = min(horizon.numbers()), max(horizon.numbers())
    if high <= bound:
        return []
    which = "every value" if low > bound else f"values above {bound:,.0f}"
    most = 100 * ((1 + CONTROLLER_CLIP * rows / high) ** steps - 1)
    text = (
        f"{which} leave the proportional controller inert: at {high:,g} sequences it can raise beta by "
        f"{most:.1f} % at most in {steps} steps of {rows} completions; for 10 % the horizon must be "
        f"{bound:,.0f} sequences or less"
    )
    return [Problem("search.horizon", text)]


def _kl_doubts(spec: StudySpec) -> list[Problem]:
    doubts: list[Problem] = []
    unit = f"nats per {spec.kl_unit.value}"
    guard, limit, target = spec.kl_guard, spec.objective.kl_limit, spec.search.target_kl
    if guard is not None and limit is not None and guard.limit < limit:
        text = (
            f"{guard.limit:g} {unit} stops trials below objective.kl_limit ({limit:g}), so that limit "
            "hardly ever decides"
        )
        doubts.append(Problem("guards.kl.limit", text))
    if guard is not None and guard.patience >= spec.trainer.steps:
        text = f"{guard.patience} steps can't pass in a trial of {spec.trainer.steps}: it never stops one"
        doubts.append(Problem("guards.kl.patience", text))
    highest = None if target is None else target.largest()
    if guard is not None and highest is not None and highest >= guard.limit:
        text = f"up to {highest:g} {unit}, while guards.kl.limit stops a trial at {guard.limit:g}"
        doubts.append(Problem("search.target_kl", text))
    if limit is not None and spec.kl_unit is KLUnit.TOKEN and limit > _HIGH_PER_TOKEN:
        text = (
            f"{limit:g} nats per token is {limit * spec.trainer.max_new_tokens:,g} nats over "
            f"{spec.trainer.max_new_tokens} tokens; if nats per sequence are meant, set kl_unit: sequence"
        )
        doubts.append(Problem("objective.kl_limit", text))
    return doubts


def _step_doubts(spec: StudySpec) -> list[Problem]:
    if spec.evaluate.every < spec.trainer.steps:
        return []
    text = f"{spec.evaluate.every} of {spec.trainer.steps} steps: gold is seen at the start and the end only"
    return [Problem("evaluate.every", text)]
