"""What a study says follows from its tables: every run is there, results, figures and texts are made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from studies_case import STUDIES, load_script

PREPARED = ("2026-11-30-smollm2-penalties",)
"""Not yet run: they need a GPU."""
NAMES = sorted(
    path.parent.name for path in STUDIES.glob("*/study.py") if path.parent.name not in PREPARED
)
SECTIONS = ("**Question.**", "**Answer.**", "**Limits.**", "**Repeat")
NUMBER = re.compile(r"(?<![\w.\-])-?\d*\.\d+")
FOLDER_NAME = re.compile(r"`[^`]*`|\([^)]*\.(?:md|png|json|csv|yaml)\)")


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def results_of(name: str) -> dict[str, Any]:
    return json.loads((STUDIES / name / "results.json").read_text(encoding="utf-8"))


def answer_of(name: str) -> str:
    """The paragraph that says what was found."""
    text = (STUDIES / name / "README.md").read_text(encoding="utf-8")
    return text.split("**Answer.**")[1].split("\n\n")[0]


def numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for one in value.values():
            yield from numbers_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from numbers_in(one)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def test_there_are_six_studies() -> None:
    assert len(NAMES) == 6


def test_every_run_that_was_planned_is_reported(name: str) -> None:
    folder = STUDIES / name
    study = load_script(name).STUDY
    runs = pd.read_csv(folder / "runs.csv")
    there = set(runs[["block", "arm", "seed"]].drop_duplicates().itertuples(index=False, name=None))
    planned = {
        (block_name, arm, seed)
        for block_name, block in study.blocks(False, folder).items()
        for arm in block.arms
        for seed in block.seeds
    }
    assert there == planned
    machine = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
    ended = sum(sum(block["ends"].values()) for block in machine["blocks"].values())
    assert ended == len(planned)


def test_results_follow_from_the_tables(name: str, tmp_path: Path) -> None:
    for path in (STUDIES / name).iterdir():
        if path.suffix in (".csv", ".json", ".md") and path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    load_script(name)
    import experiment

    study = load_script(name).STUDY
    experiment.analyse_study(study, tmp_path)
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8")) == results_of(name)
    written = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert written == (STUDIES / name / "README.md").read_text(encoding="utf-8")


def test_the_page_has_its_sections_and_figures(name: str) -> None:
    text = (STUDIES / name / "README.md").read_text(encoding="utf-8")
    assert [part for part in SECTIONS if part not in text] == []
    figures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert figures
    assert [one for one in figures if not (STUDIES / name / one).is_file()] == []
    assert f"studies/{name}/study.py" in text


def no_results(text: str, name: str) -> list[str]:
    """Decimal numbers of a text that are neither results of the study, to their digits, nor its settings."""
    known = [abs(x) for value in numbers_in(results_of(name)) for x in (value, 100 * value)]
    settings = json.dumps(
        json.loads((STUDIES / name / "machine.json").read_text(encoding="utf-8"))["blocks"]
    )
    missing: list[str] = []
    for word in NUMBER.findall(FOLDER_NAME.sub(" ", text)):
        digits = len(word.split(".")[1])
        said = abs(float(word))
        half = 0.5001 * 10**-digits
        if any(abs(x - said) <= half for x in known):
            continue
        if said not in [float(x) for x in NUMBER.findall(settings)]:
            missing.append(word)
    return missing


def test_every_decimal_number_of_the_answer_is_a_result(name: str) -> None:
    assert no_results(answer_of(name), name) == []


def findings() -> dict[str, str]:
    """The numbered paragraphs of the page of findings, by the study that each links to."""
    page = (STUDIES / "README.md").read_text(encoding="utf-8")
    part = page.split("## What we found")[1].split("\n## ")[0]
    items = re.split(r"^\d+\. ", part, flags=re.MULTILINE)[1:]
    linked = [re.findall(r"\]\(([^)/]+)/README\.md\)", item) for item in items]
    return {links[0]: item for links, item in zip(linked, items, strict=True)}


def test_the_page_of_findings_has_each_study_once() -> None:
    assert sorted(findings()) == NAMES


def test_every_decimal_number_of_a_finding_is_a_result_of_its_study(name: str) -> None:
    assert no_results(findings()[name], name) == []


def test_the_seeds_of_a_named_winner_are_eight_or_more(name: str) -> None:
    machine = json.loads((STUDIES / name / "machine.json").read_text(encoding="utf-8"))
    seeds = {seed for block in machine["blocks"].values() for seed in block["seeds"]}
    sweeps = results_of(name).get("sweeps", 0)
    assert max(len(seeds), sweeps) >= 8
