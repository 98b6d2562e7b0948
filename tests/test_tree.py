"""The tree is as the README and the style guide say."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import kltune
from kltune.spec.load import load_spec

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "kltune").rglob("*.py"))
TEXTS = {".py", ".md", ".yaml", ".yml", ".toml", ".txt", ".jsonl", ".html", ".css", ".js", ""}
FORBIDDEN = {"utils", "util", "helpers", "helper", "common", "base", "core", "misc", "manager"}

# Modules without a test file of their own, and why.
UNMIRRORED = {
    "__main__.py": "one call; the command-line tests go through it",
    "diagnose/runlog.py": "types only",
    "metrics/eval_names.py": "a table; tests/metrics/test_names.py checks it",
    "metrics/record.py": "types only",
    "metrics/step_names.py": "a table; tests/metrics/test_names.py checks it",
    "rebuild/kitchen.py": "minutes of training; tests/tasks/kitchen checks the weights it made",
    "report/document.py": "types only",
    "study/observer.py": "types only",
    "tasks/kitchen/foods.py": "a table; tests/tasks/kitchen/test_task.py checks it",
    "tasks/protocol.py": "types only",
    "trainer/batch.py": "types only",
    "trainer/protocol.py": "types only; tests/conformance runs it on every bank",
    "trainer/slot.py": "types only",
    "trainer/soundness/score_facts.py": "types only",
    "trainer/soundness/token_facts.py": "types only",
    "trial/outcome.py": "types only",
}


def listed(*args: str) -> list[str]:
    done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [name for name in done.stdout.split("\0") if name]


def tracked() -> list[Path]:
    """Files that are in git or would be added by `git add .`."""
    names = listed("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return sorted({ROOT / name for name in names if (ROOT / name).is_file()})


def relative(path: Path) -> str:
    return path.relative_to(ROOT / "kltune").as_posix()


def test_every_module_has_its_test_file() -> None:
    missing = []
    for path in MODULES:
        name = relative(path)
        mirror = ROOT / "tests" / Path(name).with_name(f"test_{path.name}")
        if path.name != "__init__.py" and name not in UNMIRRORED and not mirror.exists():
            missing.append(f"{name}: tests/{mirror.relative_to(ROOT / 'tests').as_posix()}")
    assert missing == []


def test_the_exceptions_are_modules_without_a_test() -> None:
    gone = [name for name in UNMIRRORED if not (ROOT / "kltune" / name).exists()]
    mirrors = {name: Path(name).with_name(f"test_{Path(name).name}") for name in UNMIRRORED}
    tested = [name for name, mirror in mirrors.items() if (ROOT / "tests" / mirror).exists()]
    assert (gone, tested) == ([], [])


def test_no_file_is_longer_than_300_lines() -> None:
    long = {
        relative(path): count
        for path in MODULES
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 300
    }
    assert long == {}


def test_no_module_is_called_utils_or_the_like() -> None:
    names = {part.removesuffix(".py") for path in MODULES for part in path.relative_to(ROOT).parts}
    assert names & FORBIDDEN == set()


def test_every_module_opens_with_what_goes_in_and_comes_out() -> None:
    closed = [p for p in MODULES if not p.read_text(encoding="utf-8").startswith('"""')]
    assert closed == []


def test_modules_lie_at_most_two_folders_deep() -> None:
    # tasks/<task>/ is a package of its own: a task brings prompts, gold and weights.
    deep = [relative(path) for path in MODULES if len(path.relative_to(ROOT).parts) > 4]
    assert deep == []


@pytest.mark.parametrize("path", sorted((ROOT / "sweeps").glob("*.yaml")), ids=lambda p: p.name)
def test_every_sweep_loads(path: Path) -> None:
    assert load_spec(path).spec.name


def test_sweeps_have_names_of_their_own() -> None:
    names = [load_spec(path).spec.name for path in (ROOT / "sweeps").glob("*.yaml")]
    assert len(set(names)) == len(names)


def test_the_version_is_the_installed_one_and_the_changelog_has_it() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", kltune.__version__)
    assert importlib.metadata.version("kltune") == kltune.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", changelog, re.MULTILINE)
    assert not released or released[0] == kltune.__version__
    assert re.findall(r"^### (\w+)", changelog, re.MULTILINE)[0] == "Numerics"


def test_every_dependency_is_pinned_within_its_range() -> None:
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert pins["torch"] == "2.13.0"
    assert not any(re.search(r"[/@+;]", line) for line in lines if not line.startswith("#"))
    extras = project["optional-dependencies"].values()
    for text in [*project["dependencies"], *(text for extra in extras for text in extra)]:
        requirement = Requirement(text)
        assert pins[requirement.name] in requirement.specifier, text


def test_no_tracked_file_names_a_machine_path() -> None:
    # This checkout, this home, usual mounts, internal addresses. /tmp may stand in an example.
    own = "|".join(re.escape(str(path)) for path in (ROOT, Path.home()) if len(path.parts) > 1)
    pattern = re.compile(
        rf"(?<![\w.])(?:{own}|/(?:root|work|mnt|opt|workspace)/\w)|https?://(?:10|192)\."
    )
    found = []
    for path in tracked():
        if path.suffix in TEXTS and path != Path(__file__):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if pattern.search(line):
                    found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert found == []


def test_no_tracked_file_is_large_or_a_database() -> None:
    assert [p for p in tracked() if p.suffix in {".db", ".gguf", ".pt", ".bin"}] == []
    assert sum(p.stat().st_size for p in tracked() if p.suffix == ".safetensors") <= 10e6
