"""The file that is written: its limits in the target's unit, where they come from, and that it runs anywhere."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tripwire_case as case

from kltune.errors import SpecError
from kltune.export.setting import Stop
from kltune.export.tripwire import tripwire
from kltune.spec.guards import GuardsSpec, KLGuardSpec
from kltune.spec.trial import KLUnit

TRL = {"kl": 0.03, "loss": 0.002, "grad_norm": 1.1}
VERL = {"actor/kl_loss": 0.03, "actor/pg_loss": -0.01, "actor/grad_norm": 0.6}
FRAMEWORKS = pytest.mark.parametrize("framework", case.TOLD)


def feed(made: ModuleType, rows: list[Mapping[str, Any]]) -> list[str]:
    watch = made.Tripwire(out=io.StringIO())
    return [watch.check(row, step) for step, row in enumerate(rows, start=1)]


def test_the_limit_of_a_study_in_nats_per_sequence_is_divided_by_the_targets_length(
    tmp_path: Path,
) -> None:
    # Ziegler's 6 nats per sequence at 24 tokens are .25 nats per token (kl-reference O7).
    winner = case.winner(
        kl_unit=KLUnit.SEQUENCE, kl_guard=KLGuardSpec(limit=6.0, patience=4), kl_limit=6.0
    )
    made = case.load(case.text("trl", winner, mean_tokens=24.0), tmp_path)
    assert pytest.approx(0.25) == made.LIMIT
    assert made.LIMIT_PATIENCE == 4
    assert pytest.approx(1.0 / 24, rel=1e-3) == made.PEAK  # 1 nat per sequence at the peak
    assert pytest.approx(0.1 / 24, rel=1e-3) == made.STALLED


def test_a_limit_per_token_is_multiplied_where_the_trainer_logs_sums(tmp_path: Path) -> None:
    values = {**case.TOLD["verl"], "actor_rollout_ref.actor.loss_agg_mode": "seq-mean-token-sum"}
    made = case.load(case.text("verl", mean_tokens=100.0, values=values), tmp_path)
    assert (made.KL_UNIT, made.LIMIT, made.PEAK) == ("nats/sequence", 20.0, 5.0)
    assert pytest.approx(0.1) == made.STALLED
    assert made.selftest() == []


def test_a_constant_that_the_trainer_divides_by_is_undone(tmp_path: Path) -> None:
    name = "actor_rollout_ref.actor.loss_agg_mode"
    values = {
        **case.TOLD["verl"],
        name: "seq-mean-token-sum-norm",
        "actor_rollout_ref.actor.loss_scale_factor": 32,
    }
    made = case.load(case.text("verl", values=values), tmp_path)
    assert (made.KL_FACTOR, made.LIMIT) == (32, 4.0)
    assert feed(made, [{**VERL, "actor/kl_loss": 0.12}] * 3)[-1] == "warn"
    assert feed(made, [{**VERL, "actor/kl_loss": 0.13}] * 3)[-1] == "stop"
    assert made.selftest() == []


def test_without_a_limit_the_peak_stops(tmp_path: Path) -> None:
    winner = case.without_limits(case.winner())
    made = case.load(case.text("trl", winner), tmp_path)
    assert (made.LIMIT, made.AT_PEAK) == (None, "stop")
    assert feed(made, [{**TRL, "kl": 0.06}] * 3)[-1] == "stop"
    assert made.selftest() == []


def test_a_setting_that_was_never_run_has_limits_alone(tmp_path: Path) -> None:
    made = case.load(case.text("trl", case.winner(stop=None)), tmp_path)
    assert (made.PEAK, made.LIMIT) == (None, 0.2)
    assert made.selftest() == []


def test_with_neither_peak_nor_limit_only_the_finite_is_left_and_it_is_said(
    tmp_path: Path,
) -> None:
    winner = case.without_limits(case.winner(stop=None))
    made = case.load(case.text("trl", winner), tmp_path)
    assert made.selftest() == []
    told = tripwire(winner, case.target("trl"), case.exported("trl")).warnings
    assert any("stops only on what is not finite" in warning for warning in told)


def test_a_guard_that_warned_in_the_study_warns_here(tmp_path: Path) -> None:
    winner = case.winner(kl_guard=KLGuardSpec(limit=0.2, action="warn"))
    made = case.load(case.text("trl", winner), tmp_path)
    assert feed(made, [{**TRL, "kl": 0.3}] * 3)[-1] == "warn"


def test_the_stall_follows_the_studys_guard(tmp_path: Path) -> None:
    off = GuardsSpec.model_validate({"stalled": "off"})
    assert case.load(case.text("trl", case.winner(guards=off)), tmp_path).STALLED is None


def test_a_stall_is_never_near_the_peak(tmp_path: Path) -> None:
    # A winner whose gold peaks at .02 nats per sequence must not be called stalled there.
    stop = Stop(60, 70, 60, 80, 80, 0.001, 0.02, "")
    made = case.load(case.text("trl", case.winner(stop=stop)), tmp_path)
    assert pytest.approx(1e-4) == made.STALLED


@FRAMEWORKS
def test_the_file_is_python_3_9_without_dependencies_and_passes_its_own_test(
    framework: str, tmp_path: Path
) -> None:
    text = case.text(framework)
    tree = ast.parse(text, feature_version=(3, 9))
    assert not [mark for mark in ("@TITLE@", "@USE@", "@LIMITS@") if mark in text]
    top = {a.name for n in tree.body if isinstance(n, ast.Import) for a in n.names}
    froms = {n.module for n in tree.body if isinstance(n, ast.ImportFrom)}
    assert top | froms <= set(sys.stdlib_module_names)
    path = tmp_path / "tripwire.py"
    path.write_text(text, encoding="utf-8")
    # -I: nothing of this environment; and neither of these two, though they are installed.
    code = (
        "import runpy, sys; sys.modules['transformers'] = None; sys.modules['torch'] = None; "
        f"sys.argv = ['tripwire.py', '--selftest']; runpy.run_path({str(path)!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "tripwire: all rules work\n"), done.stderr


@FRAMEWORKS
def test_the_file_is_clean(framework: str, tmp_path: Path) -> None:
    path = tmp_path / "tripwire.py"
    path.write_text(case.text(framework), encoding="utf-8")
    ruff = Path(sys.executable).with_name("ruff")
    command = [ruff, "check", "--isolated", "--target-version", "py39", "--select", "E,F,W,B,I"]
    done = subprocess.run(
        [*command, "--ignore", "E501", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_a_broken_rule_fails_its_own_test(tmp_path: Path) -> None:
    text = case.text("trl")
    for line, broken in (
        ("if self._above_limit and self._above_limit >=", "if self._above_limit >= 9 and 1 >="),
        ("math.isfinite(values.get(n, 0.0))]\n        grad", "True]\n        grad"),
        ("if self._without_kl >= BLIND_AFTER", "if False"),
    ):
        assert line in text
        assert case.load(text.replace(line, broken), tmp_path).selftest() != []


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    winner = case.winner(study='a"""\nimport os\n\\N{x} \\u12')
    made = case.load(case.text("trl", winner), tmp_path)
    assert "import os" in (made.__doc__ or "")
    assert not hasattr(made, "os")


def test_a_framework_without_a_reader_is_refused() -> None:
    told = replace(case.exported("trl"), framework="nemo-rl")
    with pytest.raises(SpecError, match="a tripwire reads the log of trl, verl, openrlhf"):
        tripwire(case.winner(), case.target("trl"), told)


def test_every_limit_says_where_it_comes_from() -> None:
    own, gold = GuardsSpec(kl=KLGuardSpec(limit=0.2)), case.winner().gold
    assert gold is not None
    text = " ".join(case.text("trl", case.winner(guards=own)).replace("\n#", "").split())
    for said in (
        "step 60 of 80 run, exact KL 0.05 nats/token = 1 nats/sequence at 20 tokens per completion",
        f"gold 0.7 [0.6, 0.8] ({gold.basis}). Steps 60 to 70 can't be told from it. KL measured on the",
        "Hard limit: guards.kl.limit of the study, 0.2 nats/token",
        "guards.stalled of the study: 0.1 nats/sequence",
    ):
        assert said in text
    assert "Hard limit: objective.kl_limit of the study" in case.text("trl").replace("\n#", "")


def test_gold_that_never_fell_is_said_to_have_not() -> None:
    stop = Stop(60, 80, 60, 80, 80, 0.05, 1.0, "")
    said = "so gold was not seen to fall behind it"
    assert said in " ".join(case.text("trl", case.winner(stop=stop)).replace("\n#", "").split())
    assert said not in " ".join(case.text("trl").replace("\n#", "").split())


def test_a_trial_in_doubt_is_said_so_in_the_file_and_first() -> None:
    found = case.winner()
    doubted = replace(found, source=replace(found.source, doubt='is infeasible: "so"'))
    made = tripwire(doubted, case.target("trl"), case.exported("trl"))
    assert made.warnings[0] == 'trial 7 is infeasible: "so"'
    assert "Warning: trial 7 is infeasible: 'so'." in made.text.split("Made by")[0]
