"""Prompts, scorers and model in, fingerprints out: a study must not mix two of them under one name.

The spec names files; what is in them may change between two sessions. inputs.json in the
study folder holds what the first session saw.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Mapping
from pathlib import Path

from kltune.errors import StudyError
from kltune.metrics.jsonl import read_json, write_json
from kltune.tasks.calls_made import PendingScorer
from kltune.tasks.calls_weighted import WeightedScorer
from kltune.tasks.prompts import column_names
from kltune.tasks.registry import Task
from kltune.tasks.scorers import FunctionScorer
from kltune.trainer.sources import ModelSource

FILE = "inputs.json"
_ENDS = ("config.json", ".safetensors", ".gguf", ".bin", "tokenizer.json")
_SAMPLED = 1 << 16


def fingerprints(task: Task, source: ModelSource) -> dict[str, str]:
    """What a study is made of, by name; equal texts mean equal inputs."""
    found = {f"prompts ({split})": digest for split, digest in task.digests.items()}
    further = [(f"gold {name}", scorer) for name, scorer in task.golds.items()]
    for role, scorer in (("gold", task.gold), *further, ("proxy", task.proxy)):
        digest = _scorer_digest(scorer)
        if digest is not None:
            found[role] = digest
    found["model"] = _model_digest(source)
    if source.adapter is not None:
        found["start adapter"] = _folder_digest(Path(source.adapter))
    return found


def check_inputs(study_path: Path, now: Mapping[str, str]) -> None:
    """Refuse inputs that differ from those of the study's first session; writes nothing.

    Raises:
        StudyError: something changed; what, is named.
    """
    changed = changed_inputs(study_path, now)
    if changed:
        raise StudyError(
            f"{study_path}: {', '.join(changed)} changed since this study began, so old and new trials "
            "could not be compared; put it back, use another --study, or run with --fresh, which "
            "moves this study aside"
        )


def changed_inputs(study_path: Path, now: Mapping[str, str]) -> list[str]:
    """Names of the inputs that differ from those of the study's first session; none where it noted none."""
    path = study_path / FILE
    if not path.is_file():
        return []
    before = read_json(path)["inputs"]
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def note_inputs(study_path: Path, now: Mapping[str, str], task: Task | None = None) -> None:
    """Write down what the first session sees; ``task``: with where its prompts come from and how many they are."""
    if not (study_path / FILE).is_file():
        about = {} if task is None else {"prompts": _prompt_facts(task)}
        write_json(study_path / FILE, {"schema": 1, "inputs": dict(now), **about})


def _prompt_facts(task: Task) -> dict[str, object]:
    """For a reader: only the digests decide whether prompts changed."""
    splits = task.splits
    by_name = {"train": splits.train, "select": splits.select, "test": splits.test}
    return {
        "source": task.source or f"builtin:{task.name}",
        "columns": list(column_names(splits)),
        "splits": {
            name: {"prompts": len(prompts), "sha256": task.digests[name]}
            for name, prompts in by_name.items()
        },
        "notes": [*splits.doubts, *splits.notes],
    }


def _scorer_digest(scorer: object) -> str | None:
    """None for what has no code of the user's: built in, or learned from the rest."""
    match scorer:
        case FunctionScorer():
            return _code_digest(scorer)
        case PendingScorer():
            return scorer.fingerprint
        case WeightedScorer():
            parts = [f"{p.name} {p.weight!r} {_scorer_digest(p.scorer)}" for p in scorer.parts]
            return hashlib.sha256("\n".join(parts).encode()).hexdigest()
        case _:
            return None


def _code_digest(scorer: FunctionScorer) -> str:
    """Of the file that defines the scorer; comments and layout don't count."""
    try:
        path = inspect.getsourcefile(inspect.unwrap(scorer.function))
        text = "" if path is None else ast.dump(ast.parse(Path(path).read_text(encoding="utf-8")))
    except (OSError, TypeError, SyntaxError):  # a builtin, or code without a file
        text = scorer.name
    return hashlib.sha256(text.encode()).hexdigest()


def _model_digest(source: ModelSource) -> str:
    """Names, sizes, first and last bytes of the weights: cheap, and enough to notice another model."""
    folder = Path(source.pretrained)
    if source.kind == "hub" or not folder.is_dir():
        return f"hub:{source.pretrained}"
    return _folder_digest(folder)


def _folder_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name.endswith(_ENDS):
            size = path.stat().st_size
            digest.update(f"{path.name}:{size}".encode())
            with path.open("rb") as file:
                digest.update(file.read(_SAMPLED))
                file.seek(max(0, size - _SAMPLED))
                digest.update(file.read(_SAMPLED))
    return digest.hexdigest()
