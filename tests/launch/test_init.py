from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from adopt_case import ENDING, OPENRLHF_NEW

from kltune.errors import ExitCode, RunError, SpecError
from kltune.launch.assemble import find_inputs, load_ground
from kltune.launch.init import InitRequest, run_init, study_name
from kltune.spec.checks import check_paths
from kltune.spec.load import load_spec

OWN = InitRequest(Path("mine/spec.yaml"), task="own", model="builtin:kitchen")


class Script:
    """Answers in order; the one after the last is Ctrl-C."""

    def __init__(self, *answers: str) -> None:
        self.left = list(answers)
        self.asked: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.asked.append(prompt)
        if not self.left:
            raise KeyboardInterrupt
        return self.left.pop(0)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: Path) -> Sequence[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_without_any_flag_the_built_in_study_is_written(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_init(InitRequest(Path("first.yaml"))) == ExitCode.DONE
    loaded = load_spec(Path("first.yaml"))
    check_paths(loaded)
    assert (loaded.spec.name, loaded.spec.model.base) == ("first", "builtin:kitchen")
    assert files(here) == ["first.yaml"]
    said = capsys.readouterr()
    assert said.out == ""
    assert "kltune sweep first.yaml --dry-run" in said.err


def test_a_task_of_ones_own_comes_with_examples_that_pass_the_path_checks(here: Path) -> None:
    assert run_init(OWN) == ExitCode.DONE
    assert files(here) == ["mine/prompts.jsonl", "mine/rewards.py", "mine/spec.yaml"]
    loaded = load_spec(here / "mine/spec.yaml")
    check_paths(loaded)
    assert loaded.spec.name == "mine"


def test_the_result_as_json_is_all_that_stdout_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_init(_with(as_json=True)) == ExitCode.DONE
    facts = json.loads(capsys.readouterr().out)
    assert facts["spec"] == "mine/spec.yaml"
    assert facts["examples"] == ["mine/prompts.jsonl", "mine/rewards.py"]
    assert facts["next"][0] == "kltune check mine/spec.yaml"


def _with(**changes: Any) -> InitRequest:
    return replace(OWN, **changes)


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (_with(model=None), "--model: needed for a task of your own"),
        (_with(task="nope"), "--task: must be kitchen, everyday or own"),
        (_with(task="kitchen", gold="a.py:b"), "has prompts and gold of its own"),
        (_with(minutes=0.0), "--minutes: must be a number above 0"),
        (_with(minutes=float("nan")), "--minutes: must be a number above 0"),
        (_with(model="./absent"), "model.base: no such folder"),
        (_with(algorithm="dpo"), "trainer.algorithm"),
        (_with(spec_path=Path("spec.txt")), "a spec is a .yaml file"),
        (_with(source=("nope", Path("x"))), "--from: must be one of trl, verl"),
        (_with(source=("verl", Path("absent.yaml"))), "absent.yaml"),
        (_with(source_version="1.0"), "only with --from"),
    ],
)
def test_what_makes_no_spec_is_refused_and_nothing_is_written(
    here: Path, request_: InitRequest, told: str
) -> None:
    with pytest.raises(SpecError, match=told):
        run_init(request_)
    assert list(here.iterdir()) == []


def test_a_spec_that_is_there_is_replaced_only_when_asked_to(here: Path) -> None:
    path = here / "first.yaml"
    path.write_text("mine: 1\n", encoding="utf-8")
    with pytest.raises(SpecError, match="--force replaces it"):
        run_init(InitRequest(path))
    with pytest.raises(SpecError, match="left as it is"):
        run_init(InitRequest(path), Script(""))
    assert path.read_text(encoding="utf-8") == "mine: 1\n"
    run_init(InitRequest(path), Script("y", "", "", ""))
    assert load_spec(path).spec.name == "first"
    run_init(InitRequest(path, force=True, minutes=3))
    assert load_spec(path).spec.budget.wall == 180


def test_prompts_and_scorers_that_are_there_stay_even_under_force(here: Path) -> None:
    run_init(OWN)
    mine = here / "mine/rewards.py"
    mine.write_text(mine.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    run_init(_with(force=True))
    assert mine.read_text(encoding="utf-8").endswith("# mine\n")


def test_a_link_at_the_spec_s_place_is_not_followed_out_of_the_folder(here: Path) -> None:
    target = here / "other.txt"
    target.write_text("keep", encoding="utf-8")
    (here / "link.yaml").symlink_to(target)
    with pytest.raises(SpecError, match="is there"):
        run_init(InitRequest(Path("link.yaml")))
    (here / "dangling.yaml").symlink_to(here / "gone")
    with pytest.raises(SpecError, match="no ordinary file"):
        run_init(InitRequest(Path("dangling.yaml"), force=True))
    assert target.read_text(encoding="utf-8") == "keep"


def test_only_what_no_flag_says_is_asked(here: Path) -> None:
    script = Script("rloo")
    flags = _with(prompts="p.jsonl", gold="r.py:g", proxy="learned", minutes=5)
    assert run_init(flags, script) == ExitCode.DONE
    assert script.asked == ["algorithm [grpo]: "]
    assert load_spec(Path("mine/spec.yaml")).spec.trainer.algorithm == "rloo"


def test_every_question_takes_its_default_on_enter(here: Path) -> None:
    script = Script("", "", "")
    assert run_init(InitRequest(Path("a.yaml")), script) == ExitCode.DONE
    assert [prompt.split(" [")[0] for prompt in script.asked] == ["task", "algorithm", "minutes"]
    assert load_spec(Path("a.yaml")).spec.name == "a"


def test_a_wrong_answer_is_told_at_once_and_asked_again(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script(
        "owm", "own", "", "./absent", "builtin:kitchen", "", "gold", "", "rewards.py:gold", "",
        "dpo", "ppo", "-3", "7",
    )  # fmt: skip
    assert run_init(InitRequest(Path("mine/spec.yaml")), script) == ExitCode.DONE
    spec = load_spec(Path("mine/spec.yaml")).spec
    assert (spec.trainer.algorithm, spec.budget.wall) == ("ppo", 420)
    said = capsys.readouterr().err
    for told in (
        "must be kitchen, everyday or own (got 'owm')",
        "an answer is needed",
        "no such folder",
        "must look like",
        "is the same function",
        "Input should be 'grpo'",
        "a number above 0",
    ):
        assert told in said


@pytest.mark.parametrize("count", range(7))
def test_ctrl_c_at_any_question_leaves_nothing(
    here: Path, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script(*["own", "builtin:kitchen", "", "", "", "", ""][:count])
    assert run_init(InitRequest(Path("mine/spec.yaml")), script) == ExitCode.INTERRUPTED
    assert list(here.iterdir()) == []
    assert "nothing was written" in capsys.readouterr().err


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError(28, "No space left", "spec")])
def test_what_was_begun_to_be_written_is_taken_back(
    here: Path, failure: type[BaseException] | OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = Path.replace

    def broken(self: Path, target: Path) -> Path:
        if Path(target).name == "spec.yaml":
            raise failure
        return move(self, target)

    monkeypatch.setattr(Path, "replace", broken)
    if isinstance(failure, OSError):
        with pytest.raises(RunError, match="No space left"):
            run_init(OWN)
    else:
        assert run_init(OWN) == ExitCode.INTERRUPTED
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("sweeps/beta.yaml", "beta"),
        ("mine/spec.yaml", "mine"),
        ("my study (2)!.yaml", "my-study-2"),
        ("…/spec.yaml", "study"),
        (f"{'a' * 200}.yaml", "a" * 100),
    ],
)
def test_a_study_is_named_after_its_spec(path: str, name: str) -> None:
    assert study_name(Path(path)) == name


VERL = """
algorithm: {adv_estimator: grpo}
actor_rollout_ref:
  model: {path: some/model}
  actor: {use_kl_loss: true, kl_loss_coef: 0.001, kl_loss_type: low_var_kl, optim: {lr: 1.0e-6}}
  rollout: {n: 16}
data: {train_batch_size: 1024, max_response_length: 512}
"""


def test_another_trainer_s_config_becomes_the_spec_and_flags_win_over_it(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "verl.yaml").write_text(VERL, encoding="utf-8")
    source = ("verl", Path("verl.yaml"))
    script = Script("", "", "", "9")
    assert run_init(InitRequest(Path("mine.yaml"), source=source), script) == ExitCode.DONE
    asked = [prompt.split(" [")[0] for prompt in script.asked]
    assert asked == ["prompts", "gold", "proxy", "minutes"]
    spec = load_spec(Path("mine.yaml")).spec
    assert (spec.name, spec.model.base, spec.trainer.group_size) == ("mine", "some/model", 16)
    assert spec.trainer.max_new_tokens == 512
    assert "my-verl" in str(spec.baselines[0])
    assert "warning: " in capsys.readouterr().err

    kept = InitRequest(Path("b.yaml"), source=source, model="builtin:kitchen", algorithm="rloo")
    run_init(kept)
    spec = load_spec(Path("b.yaml")).spec
    assert (spec.model.base, spec.trainer.algorithm) == ("builtin:kitchen", "rloo")


CONFIGS = {
    "verl": VERL.replace("512", "8192"),
    "openrlhf": OPENRLHF_NEW.replace("max_new_tokens 64", "max_new_tokens 4096"),
    "nemo-rl": """
grpo: {num_prompts_per_step: 32, num_generations_per_prompt: 16}
loss_fn: {reference_policy_kl_penalty: 0.01}
policy: {model_name: org/large, max_total_sequence_length: 512, generation: {max_new_tokens: 512}}
""",
    "trl": """
from trl import GRPOConfig, GRPOTrainer
config = GRPOConfig(output_dir="x", beta=0.04, max_completion_length=1024, num_generations=8)
trainer = GRPOTrainer(model="org/large", args=config)
""",
}


@pytest.mark.parametrize("trainer", sorted(CONFIGS))
def test_a_large_run_s_config_on_the_built_in_task_gives_a_spec_that_can_be_loaded(
    trainer: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = Path(f"given{ENDING[trainer]}")
    given.write_text(CONFIGS[trainer], encoding="utf-8")
    request = InitRequest(Path("mine.yaml"), task="kitchen", source=(trainer, given))
    assert run_init(request) == ExitCode.DONE
    loaded = load_spec(Path("mine.yaml"))
    spec = loaded.spec
    assert spec.model.base == "builtin:kitchen", (
        "the task's own model, whatever the large run trains"
    )
    assert spec.trainer.max_new_tokens == 112
    assert "trainer.max_new_tokens: 112 instead of" in capsys.readouterr().err
    text = " ".join(loaded.text.replace("#", "").split())
    assert "128 positions, prompts included" in text
    if trainer in ("verl", "nemo-rl"):  # the others name no model that is read
        assert "--model chooses another" in text
    ground = load_ground(spec, find_inputs(loaded), None)  # what the next command does
    assert ground.loaded.model.config.max_position_embeddings == 128


def test_a_model_that_is_named_by_flag_is_kept_and_its_room_too(here: Path) -> None:
    (here / "verl.yaml").write_text(CONFIGS["verl"], encoding="utf-8")
    source = ("verl", Path("verl.yaml"))
    small = InitRequest(
        Path("a.yaml"), task="kitchen", source=source, model="builtin:kitchen-small"
    )
    run_init(small)
    spec = load_spec(Path("a.yaml")).spec
    assert (spec.model.base, spec.trainer.max_new_tokens) == ("builtin:kitchen-small", 112)
