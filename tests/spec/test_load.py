from __future__ import annotations

import json
from pathlib import Path

import pytest
from spec_files import adaptive, minimal, own_task, problems_of, write

from kltune.errors import ExitCode, SpecError
from kltune.spec.load import from_resolved, load_spec, resolve_path, resolved


def refusal(path: Path, *overrides: str) -> str:
    with pytest.raises(SpecError) as caught:
        load_spec(path, overrides)
    assert caught.value.exit_code == ExitCode.USAGE
    return str(caught.value)


def yaml_file(folder: Path, text: str | bytes) -> Path:
    path = folder / "spec.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


GOOD = """\
name: no                 # YAML 1.1 would read false
task: kitchen
model: {base: builtin:kitchen}
trainer: {steps: 010, learning_rate: 1e-4}
search: {beta: 1e-3}
budget: {trials: 1, wall: 15m}
"""


def test_yaml_1_2_reads_1e_4_as_a_number_and_no_as_a_word(tmp_path: Path) -> None:
    loaded = load_spec(yaml_file(tmp_path, GOOD))
    assert loaded.spec.name == "no"
    assert loaded.spec.trainer.learning_rate == 1e-4
    assert loaded.spec.trainer.steps == 10
    assert loaded.spec.search.beta.value == 1e-3
    assert loaded.spec.budget.wall == 900.0


def test_the_text_is_kept_word_for_word(tmp_path: Path) -> None:
    text = "# asked on a Sunday\r\n" + GOOD
    loaded = load_spec(yaml_file(tmp_path, text), ["seed=3"])
    assert loaded.text == text
    assert loaded.overrides == ("seed=3",)
    assert loaded.spec.seed == 3


def test_every_mistake_is_in_one_message(tmp_path: Path) -> None:
    spec = minimal()
    spec["budget"] = {"trials": 0, "slots": 0}
    spec["guards"] = {"kl": {"limit": -1}, "horizn": 3}
    spec["modle"] = {}
    spec["name"] = 7
    path = write(tmp_path, spec)
    first, *lines = refusal(path).splitlines()
    assert first == f"{path}: 6 problem(s)"
    assert sorted(lines) == [
        "  budget.slots: Input should be greater than 0, or 'auto' (got 0)",
        "  budget.trials: Input should be greater than 0 (got 0)",
        "  guards.horizn: Extra inputs are not permitted (got 3); did you mean search.horizon? "
        "allowed here: kl, jump, "
        "negative_kl, stalled, pseudo_explosion, gold_drop, entropy, repetition, length, truncation, "
        "local_kl, proxy_spread, wall",
        "  guards.kl.limit: Input should be greater than 0 (got -1)",
        "  modle: Extra inputs are not permitted (got a section with nothing); did you mean model?",
        "  name: Input should be a valid string (got 7)",
    ]


def test_an_unknown_key_does_not_hide_a_rule_between_fields(tmp_path: Path) -> None:
    spec = adaptive()
    spec["search"]["beta"] = {"uniform": [0, 1]}
    spec["search"]["betta"] = 1
    spec["serach"] = 1
    lines = problems_of(tmp_path, spec)
    assert len(lines) == 3
    assert any(line.startswith("search.controller: proportional") for line in lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is empty; a spec needs at least name, task, model, trainer, search, budget"),
        (b"# nothing\n", "is empty"),
        (b"- 1\n", "must be `key: value` lines (got a list)"),
        (b"name: x\nname: y\n", 'line 2, column 1: found duplicate key "name"'),
        (b"name: [1\nseed: 2\n", "line 2"),
        (b"name: x\n\tseed: 1\n", "line 2, column 1"),
        (b"name: x\n---\nname: y\n", "line 2"),
        (b"name: !!python/object:os.system x\n", "line 1, column 7"),
        (b"name: *gone\n", "line 1, column 7"),
        (b"name: \x00\n", "not YAML"),
        (b"name: \xff\n", "is not UTF-8 text (byte 6)"),
        (b"day: 2024-13-45\n", "spec.yaml: "),
        (b"[" * 700, "too deeply nested"),
    ],
)
def test_text_that_is_no_spec_gets_one_clear_line(
    tmp_path: Path, text: bytes, message: str
) -> None:
    told = refusal(yaml_file(tmp_path, text))
    assert message in told
    assert "\n" not in told


def test_a_missing_file_is_named_and_a_similar_one_suggested(tmp_path: Path) -> None:
    (tmp_path / "kitchen.yaml").touch()
    told = refusal(tmp_path / "kitchn.yaml")
    assert told == (f"{tmp_path}/kitchn.yaml: no such file; did you mean {tmp_path}/kitchen.yaml?")
    assert "no such file" in refusal(tmp_path / "no" / "where.yaml")


def test_a_folder_and_a_path_through_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is a folder" in refusal(tmp_path)
    assert "can't be read: Not a directory" in refusal(tmp_path / "file" / "spec.yaml")


def test_overrides_replace_values_and_make_missing_sections(tmp_path: Path) -> None:
    path = write(tmp_path, minimal())
    overrides = ["trainer.steps=7", "objective.kl_limit=1e-2", "search.beta={log: [1, 2]}", "a=b=c"]
    spec = load_spec(path, overrides[:3]).spec
    assert (spec.trainer.steps, spec.trainer.prompts) == (7, 2)
    assert spec.objective.kl_limit == 0.01
    assert spec.search.beta.log == (1, 2)
    assert "a: Extra inputs are not permitted (got 'b=c')" in refusal(path, *overrides)


def test_the_last_override_of_a_key_wins(tmp_path: Path) -> None:
    path = write(tmp_path, minimal())
    assert load_spec(path, ["seed=1", "seed=2"]).spec.seed == 2


def test_an_override_changes_one_of_two_places_that_share_an_anchor(tmp_path: Path) -> None:
    text = GOOD.replace("{beta: 1e-3}", "{beta: &b {log: [1, 2]}, learning_rate: *b}")
    spec = load_spec(yaml_file(tmp_path, text), ["search.beta.log=[3, 4]"]).spec
    assert spec.search.learning_rate is not None
    assert (spec.search.beta.log, spec.search.learning_rate.log) == ((3, 4), (1, 2))


def test_bad_overrides_are_listed_with_the_other_mistakes(tmp_path: Path) -> None:
    spec = {**minimal(), "seed": -1}
    lines = problems_of(
        tmp_path, spec, "seed", "=3", "a..b=3", "task.gold=x", "seed.x=[1", "budget.trails=3"
    )
    assert lines == [
        "--set seed: must look like key.sub=value",
        "--set =3: must look like key.sub=value",
        "--set a..b=3: must look like key.sub=value",
        "--set task.gold=x: task is not a section here (it is 'kitchen'): set task as a whole",
        "--set seed.x=[1: line 1, column 3: expected ',' or ']', but got '<stream end>'",
        "budget.trails: Extra inputs are not permitted (got 3); did you mean budget.trials?",
        "seed: Input should be greater than or equal to 0 (got -1)",
    ]


@pytest.mark.parametrize("spec", [minimal(), adaptive()])
def test_resolved_is_strict_json_and_reads_back(tmp_path: Path, spec: dict[str, object]) -> None:
    spec["trainer"] = {"steps": 5, "completions": 8, "group_size": 4}
    spec["task"] = {"builtin": "kitchen", "proxy": {"learned": {"from": "gold"}}}
    loaded = load_spec(write(tmp_path, spec))
    text = json.dumps(resolved(loaded.spec), allow_nan=False)
    data = json.loads(text)
    assert data["schema"] == 1
    assert data["budget"]["wall"] is None
    assert data["trainer"]["prompts"] == 2
    assert from_resolved(data) == loaded.spec


def test_a_resolved_spec_of_another_schema_is_refused_with_advice(tmp_path: Path) -> None:
    data = resolved(load_spec(write(tmp_path, minimal())).spec)
    with pytest.raises(SpecError, match=r"schema 2 can't be read"):
        from_resolved({**data, "schema": 2})
    with pytest.raises(SpecError, match=r"resolved\.json: 1 problem"):
        from_resolved({**data, "seed": -1})


def test_paths_are_looked_up_here_first_then_beside_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, here = tmp_path / "specs", tmp_path / "here"
    beside.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    loaded = load_spec(write(beside, own_task(beside)))
    assert resolve_path(loaded, "prompts.txt") == beside / "prompts.txt"
    assert resolve_path(loaded, "nowhere.txt") == here / "nowhere.txt"
    assert resolve_path(loaded, "/etc/x") == Path("/etc/x")
    (here / "prompts.txt").touch()
    assert resolve_path(loaded, "prompts.txt") == here / "prompts.txt"
