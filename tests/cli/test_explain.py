from __future__ import annotations

import json
import os
import subprocess
import sys

import click
import pytest
import typer
from typer.testing import CliRunner

from kltune.cli import explain
from kltune.errors import ExitCode, SpecError

root = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
root.add_typer(explain.app, name="explain")


@root.callback()
def _root() -> None: ...


TOPICS = ["kl", "kl --mean -0.07 --tokens 40", "estimators", "controller", "units", "recipes"]
OTHERS = [
    "kl --mean -5 --top-k 50",
    "kl --mean -5 --top-p .9 --unit token",
    "kl --mean .3",
    "kl --policy .5,.5 --reference 1,0",
    "estimators --policy .8,.2 --reference .5,.5",
    "controller --target 6 --unit sequence --kl 9 --rows 1024 --horizon 777 --steps 2000",
    "units --kl-seq 6 --from openrlhf-reward --sigma-r 1e-4 --penalty .5",
    "recipes ziegler-sentiment --tokens 24",
]


def run(args: str, columns: int = 80, **env: str) -> str:
    runner = CliRunner(env={"COLUMNS": str(columns), **env})
    result = runner.invoke(root, ["explain", *args.split()], prog_name="kltune")
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("args", TOPICS + OTHERS)
@pytest.mark.parametrize("columns", [80, 140])
def test_every_screen_fits(args: str, columns: int) -> None:
    lines = run(args, columns).splitlines()
    assert 8 <= len(lines) <= 40
    assert max(map(len, lines)) <= columns
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize("args", TOPICS + OTHERS)
def test_nothing_is_cut_on_a_narrow_terminal(args: str) -> None:
    def words(columns: int) -> set[str]:
        text = run(args, columns)
        assert max(map(len, text.splitlines())) <= columns
        assert "…" not in text
        return {word.rstrip(";") for word in text.split()}

    assert words(140) <= words(40)


@pytest.mark.parametrize("args", TOPICS + OTHERS)
def test_json_is_strict(args: str) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    payload = json.loads(run(f"{args} --json"), parse_constant=refuse)
    assert payload["schema"] == 1
    assert payload["topic"] in {"kl", "kl-mean", "estimators", "controller", "units", "recipes"}


def test_json_has_the_numbers_of_the_screen() -> None:
    assert json.loads(run("kl --json"))["kl"] == pytest.approx(0.0470, abs=5e-5)
    assert json.loads(run("kl --mean -0.07 --json"))["reading"] == "noise"
    assert json.loads(run("controller --json"))["steps_to_double"] == 542
    assert json.loads(run("units --kl-seq 6 --json"))["kl_token"] == pytest.approx(0.15)
    estimators = json.loads(run("estimators --json"))
    assert next(p for p in estimators["penalties"] if p["penalty"] == "k2-loss")["cosine"] == 1.0
    infinite = json.loads(run("kl --policy .5,.5 --reference 1,0 --json"))
    assert infinite["kl"] is None
    assert "kl" in infinite["non_finite"]


def test_flags_reach_the_question() -> None:
    mean = json.loads(run("kl --mean -.1 --unit token --tokens 20 --rows 7 --json"))
    assert (mean["mean_seq"], mean["tokens"], mean["rows"]) == (-2.0, 20, 7)
    cut = json.loads(run("kl --mean -.1 --top-k 5 --top-p .9 --json"))
    assert cut["truncation"]["asked"] == "top-k 5 and top-p 0.9"
    control = json.loads(
        run("controller --target 2 --unit sequence --kl 1 --horizon 50 --rows 5 --beta .3 --json")
    )
    assert (control["target"], control["kl"], control["gain"], control["beta"]) == (2, 1, 0.1, 0.3)
    units = json.loads(
        run("units --beta .1 --from trl-rloo --sigma-r .2 --horizon 10 --rows 2 --rows-to 4 --json")
    )
    assert (units["beta_reward"], units["beta_advantage"], units["horizon_to"]) == (0.1, 0.5, 20)
    assert json.loads(run("kl --seed 2 --json"))["seed"] == 2
    recipe = json.loads(run("recipes deepseekmath --sigma-r .25 --tokens 20 --json"))
    assert (recipe["tokens"], recipe["settings"][0]["beta_reward"]) == (20, pytest.approx(0.01))


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ("kl --policy .5,.4 --reference .5,.5", "--policy: the probabilities must sum to 1"),
        ("kl --top-k 5", "--top-k: must be given together with --mean (got no --mean)"),
        ("kl --top-p .5", "--top-p: must be given together with --mean (got no --mean)"),
        ("kl --mean 1 --policy .5,.5", "--mean: must not be given together with --policy"),
        ("kl --mean nan", "--mean: must be a finite number (got nan)"),
        ("estimators --policy .5,.5", "--reference: must be given together with --policy"),
        ("controller --horizon 0", "--horizon: must be above 0 (got 0)"),
        ("units --from trl", "--from: must be trl-grpo, "),
        ("recipes verl-pppo", "NAME: unknown recipe 'verl-pppo'; did you mean verl-ppo"),
    ],
)
def test_a_bad_value_is_one_sentence_and_exit_2(args: str, told: str) -> None:
    result = CliRunner().invoke(root, ["explain", *args.split()])
    assert isinstance(result.exception, SpecError)
    assert result.exception.exit_code == ExitCode.USAGE
    assert str(result.exception).startswith(told)
    assert "\n" not in str(result.exception)
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ("kl --mean abc", "'--mean': must be a number (got 'abc')"),
        ("kl --top-k 1.5", "'--top-k': must be a whole number of at least 0 (got '1.5')"),
        ("controller --steps 0", "'--steps': must be a whole number of at least 1 (got '0')"),
        ("nonsense", "No such command 'nonsense'"),
    ],
)
def test_what_is_no_number_is_a_usage_error(args: str, told: str) -> None:
    result = CliRunner().invoke(root, ["explain", *args.split()])
    assert result.exit_code == 2
    assert told in click.unstyle(result.stderr)


@pytest.mark.parametrize("command", ["", "kl", "estimators", "controller", "units"])
def test_each_help_fits_a_screen_and_shows_an_example(command: str) -> None:
    lines = run(f"{command} --help").splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert sum("Example: kltune " in line for line in lines) == 1


def test_no_color_is_honoured_where_colours_would_be() -> None:
    code = "from kltune.cli import explain; explain.app(['units', '--beta', '9'])"
    terminal = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "80"}
    terminal.pop("NO_COLOR", None)

    def printed(**env: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**terminal, **env},
        )
        return done.stdout

    assert "\x1b[1;31m" in printed()
    assert "\x1b[1;31m" not in printed(NO_COLOR="1")
    assert "31m" not in printed(NO_COLOR="1")


@pytest.mark.parametrize("topic", ["kl", "estimators", "controller", "units"])
def test_no_screen_loads_anything_that_trains(topic: str) -> None:
    code = (
        f"import sys; from kltune.cli import explain; explain.app([{topic!r}], standalone_mode=False); "
        "print(*{n.split('.')[0] for n in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "transformers", "accelerate", "mlflow", "optuna", "matplotlib", "scipy"}
    assert set(done.stderr.split()) & heavy == set()
