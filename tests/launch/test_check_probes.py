from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from broken_setups import BROKEN, Broken
from spec_files import minimal, write

from kltune.check.lines import lines_of
from kltune.check.result import Line
from kltune.errors import EnvironmentMissingError, SpecError
from kltune.grade import Grade
from kltune.launch.assemble import Ground, build_bank, find_inputs, load_ground
from kltune.launch.check_probes import UNIT, look_at, refuse_unsound
from kltune.launch.request import SweepRequest
from kltune.launch.sweep import run_sweep
from kltune.spec.checks import check_paths
from kltune.spec.load import LoadedSpec, load_spec
from kltune.tasks.kitchen import task as kitchen
from kltune.tasks.protocol import Splits
from kltune.trainer.soundness.look import look


def small() -> dict[str, object]:
    trainer = {
        "steps": 80,
        "prompts": 8,
        "group_size": 4,
        "max_new_tokens": 8,
        "learning_rate": 3e-3,
    }
    return minimal() | {"trainer": trainer, "objective": {"kl_limit": 0.5}}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Generator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedSpec:
    return load_spec(write(tmp_path, small()))


@pytest.fixture
def ground(loaded: LoadedSpec) -> Ground:
    return load_ground(loaded.spec, find_inputs(loaded), None)


@dataclass(frozen=True)
class Named:
    function: Callable[[object], list[float]]
    name: str = "own"

    def __call__(self, samples: object) -> list[float]:
        return self.function(samples)


def failed(lines: tuple[Line, ...]) -> set[str]:
    return {line.name for line in lines if line.grade is Grade.FAIL}


def lines_with(
    broken: Broken, ground: Ground, loaded: LoadedSpec, patch: pytest.MonkeyPatch
) -> tuple[Line, ...]:
    bank = build_bank(broken.prepare(ground), loaded.spec, UNIT, broken.slots)
    broken.patch(patch, bank)
    return lines_of(look(bank, loaded.spec, samples=32), loaded.spec)


def test_the_built_in_task_is_sound(loaded: LoadedSpec) -> None:
    looked = look_at(loaded, 32)
    assert [(line.name, line.grade.value) for line in looked.lines] == [
        (name, "pass")
        for name in (
            "splits", "spec", "controller", "weights", "tokenizer", "vocabulary", "bos", "template", "stop_ids",
            "pad", "dropout", "padding", "logprobs", "temperature", "mask", "sampler", "start_kl",
            "fixed_point", "proxy", "gold", "reward_scale", "memory",
        )
    ]  # fmt: skip
    assert looked.skipped == ()


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_set_up_is_caught_by_the_right_name(
    name: str, ground: Ground, loaded: LoadedSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = BROKEN[name]
    lines = lines_with(broken, ground, loaded, monkeypatch)
    assert broken.grade in {line.grade for line in lines if line.name == broken.line}
    assert all(line.remedy for line in lines if line.grade is not Grade.PASS)


@pytest.mark.parametrize(
    "name", ["double BOS", "wrong pad", "reward model of another tokenizer", "padding counted"]
)
def test_a_sweep_refuses_what_shows_at_next_to_no_cost(
    name: str, ground: Ground, loaded: LoadedSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = BROKEN[name]
    prepared = broken.prepare(ground)
    broken.patch(monkeypatch, build_bank(prepared, loaded.spec, UNIT, 1))
    with pytest.raises(SpecError, match=rf"(?s)\n  {broken.line} .*kltune check"):
        refuse_unsound(prepared, loaded.spec, kitchen.splits())


def test_a_sweep_calls_no_scorer_for_it(ground: Ground, loaded: LoadedSpec) -> None:
    def never(samples: object) -> list[float]:
        raise AssertionError("sigma_R has asked them already; a judge may cost money")

    data = replace(ground.data, proxy=never, gold=never, golds={"more": never})  # type: ignore[arg-type]
    refuse_unsound(replace(ground, data=data), loaded.spec, kitchen.splits())


SPLITS = kitchen.splits()
SWEEPS = Path(__file__).parents[2] / "sweeps"


def overlapping() -> Splits:
    again = replace(SPLITS.train[0], id="again")
    return replace(SPLITS, test=(again, *SPLITS.test))


def test_overlapping_splits_fail_by_their_name(
    loaded: LoadedSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kitchen, "splits", overlapping)
    assert failed(look_at(loaded, 16).lines) == {"splits"}


def test_a_sweep_over_overlapping_splits_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kitchen, "splits", overlapping)
    request = SweepRequest(write(tmp_path, small()), tmp_path / "study")
    with pytest.raises(SpecError, match=r"splits .*In two splits are 1 prompt"):
        run_sweep(request)
    assert not (tmp_path / "study").exists()


def test_a_proxy_that_is_yet_to_be_learned_is_skipped_and_said(tmp_path: Path) -> None:
    proxy = {"learned": {"from": "gold", "comparisons": 64}}
    spec = load_spec(write(tmp_path, small() | {"task": {"builtin": "kitchen", "proxy": proxy}}))
    looked = look_at(spec, 16)
    assert failed(looked.lines) == set()
    assert {line.name for line in looked.lines} & {"proxy", "reward_scale"} == set()
    (gold,) = (line for line in looked.lines if line.name == "gold")
    assert gold.numbers["correlation"] is None
    assert "the proxy is learned when the sweep starts" in looked.skipped[0]


def test_a_scorer_that_raises_is_a_line_and_no_error(ground: Ground, loaded: LoadedSpec) -> None:
    def raises(samples: object) -> list[float]:
        raise KeyError("answer")

    broken = Broken(
        "proxy", prepare=lambda g: replace(g, data=replace(g.data, proxy=Named(raises)))
    )
    lines = lines_with(broken, ground, loaded, pytest.MonkeyPatch())
    assert failed(lines) == {"proxy"}
    assert "KeyError" in next(line.shown for line in lines if line.name == "proxy")


def test_a_critic_with_a_rate_of_its_own_may_learn_at_rate_0(tmp_path: Path) -> None:
    spec = small()
    trainer = {"algorithm": "ppo", "critic": {"learning_rate": 1e-2}}
    spec["trainer"] = {**small()["trainer"], **trainer}  # type: ignore[dict-item]
    looked = look_at(load_spec(write(tmp_path, spec)), 16)
    (line,) = (line for line in looked.lines if line.name == "fixed_point")
    assert line.grade is Grade.PASS


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    # Three sweeps are of SmolLM2, with the same task; one of them takes minutes enough. Those whose model is on a
    # hub run with stand-ins (tests/sweeps).
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.long] * (path.stem == "smollm2"))
        for path in sorted(SWEEPS.glob("*.yaml"))
        if path.stem == "smollm2" or path.stem.startswith("kitchen")
    ],
)
def test_no_sweep_that_ships_fails(path: Path) -> None:
    # A real language model on two cores: short completions say as much about its set-up.
    is_slow = load_spec(path).spec.model.base.startswith("package:")
    spec = load_spec(path, ("trainer.max_new_tokens=8",) if is_slow else ())
    try:
        check_paths(spec)
        looked = look_at(spec, 8 if is_slow else 32)
    except (SpecError, EnvironmentMissingError) as error:
        pytest.skip(f"its model is not here: {error}")
    assert failed(looked.lines) == set()
