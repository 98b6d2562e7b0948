from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from kltune.guard.alarm import Action, Alarm
from kltune.metrics.record import EvalMetrics, OtherGold, StepMetrics
from kltune.screen.progress import Scope
from kltune.screen.watch import LiveScreen, PlainScreen, open_screen
from kltune.spec.penalty import Penalty
from kltune.spec.trial import BetaUnit, ControllerKind, KLUnit, TrialSpec
from kltune.study.observer import Admitted, Observer
from kltune.trial.outcome import StopReason, TrialOutcome, Verdict

SCOPE = Scope("kitchen", 24, 80, KLUnit.TOKEN, BetaUnit.REWARD, 2, (1, 0.61))
STEERED = TrialSpec(
    beta=0.0754,
    penalty=Penalty.K1_REWARD,
    controller=ControllerKind.PROPORTIONAL,
    target_kl=0.0278,
    horizon=640.4,
    learning_rate=1e-3,
)
DETAIL = "kl 0.612 > 0.5 nats/token for 3 steps [bold]"

WARNING = "60 % of the completions are cut [red]"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def play(screen: Observer, clock: Clock) -> None:
    for slot in range(8):
        screen.admitted(Admitted(slot, slot + 2, 1, "sobol", STEERED, 0, Path()))
    clock.now = 30.0
    for slot in range(8):
        number = slot + 2
        screen.stepped(StepMetrics(slot, number, 20, 0.157, 2.2, 0.56, 0.1034, 900, True, {}))
        screen.evaluated(
            EvalMetrics(
                slot, number, 20, 0.6123, 0.0512, 0.5, 0.04, 0.16, 2.3, (0.6,), (0.5,), {}, ()
            )
        )
    screen.warned(6, Alarm(Action.WARN, Verdict(StopReason.TRUNCATION, WARNING), 20, 14))
    screen.ended(TrialOutcome(2, 1, Verdict(StopReason.KL_LIMIT, DETAIL), 20, 0.58, True, -0.1, 20))
    screen.ended(TrialOutcome(3, 1, Verdict(StopReason.DONE, "80 of 80"), 80, 0.9, False, 0.1, 20))


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_live_table_fits_the_terminal(width: int) -> None:
    clock = Clock()
    screen = LiveScreen(SCOPE, Console(file=io.StringIO(), width=width), clock)
    play(screen, clock)
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(screen.render())
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    assert "4/24 trials ended" in text
    assert "tokens/s" in text
    assert "left" in text
    assert "best so far: trial 1, value 0.610" in text


def test_eighty_columns_show_every_number_of_a_slot() -> None:
    clock = Clock()
    screen = LiveScreen(SCOPE, Console(file=io.StringIO(), width=80), clock)
    play(screen, clock)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(screen.render())
    text = console.export_text()
    row = next(line for line in text.splitlines() if line.startswith("    4 "))
    for part in ("k1-reward 0.0754", "20/80", "0.56", "0.61 ±0.05", "0.157", "2.2", "0.103"):
        assert part in row
    assert DETAIL in " ".join(text.split())
    assert f"trial 6 step 20: warning (truncation): {WARNING}" in " ".join(text.split())
    assert "outside the KL limit" in " ".join(text.split())
    assert "KL nats" in text
    assert "reward per nat of sequence KL" in text


def test_the_live_screen_draws_on_its_stream_and_ends_cleanly() -> None:
    clock, stream = Clock(), Terminal()
    console = Console(file=stream, width=80, force_terminal=True)
    with LiveScreen(SCOPE, console, clock) as screen:
        play(screen, clock)
    assert "best so far" in stream.getvalue()


def test_plain_lines_name_units_and_the_guards_words() -> None:
    clock, stream = Clock(), io.StringIO()
    with PlainScreen(SCOPE, stream, clock) as screen:
        play(screen, clock)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 8 + 8 + 1 + 2
    assert "target 0.0278 nats/token with horizon 640 sequences" in lines[0]
    assert "gold 0.612 ± 0.051" in lines[8]
    assert "KL 0.16 nats/token = 2.3 nats/sequence, beta 0.103" in lines[8]
    assert lines[16] == f"trial 6 step 20: warning (truncation): {WARNING}"
    assert DETAIL in lines[17]
    assert "[3/24 trials ended, 30 s so far, about" in lines[17]


def test_a_resumed_trial_says_from_where(tmp_path: Path) -> None:
    stream = io.StringIO()
    PlainScreen(SCOPE, stream).admitted(Admitted(0, 5, 2, "zero", STEERED, 30, tmp_path))
    assert "goes on from step 30 (attempt 2)" in stream.getvalue()


def test_a_terminal_gets_the_table_and_anything_else_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(open_screen(SCOPE, stream=Terminal()), LiveScreen)
    assert isinstance(open_screen(SCOPE, stream=io.StringIO()), PlainScreen)
    assert isinstance(open_screen(SCOPE, is_plain=True, stream=Terminal()), PlainScreen)
    monkeypatch.setenv("NO_COLOR", "1")
    assert isinstance(open_screen(SCOPE, stream=Terminal()), PlainScreen)


def test_the_unit_of_beta_follows_the_credit() -> None:
    clock, stream = Clock(), io.StringIO()
    scope = dataclasses.replace(SCOPE, credit="length-mean")
    play(PlainScreen(scope, stream, clock), clock)
    assert "beta 0.0754 reward per nat per token of mean KL, proportional" in stream.getvalue()
    screen = LiveScreen(scope, Console(file=io.StringIO(), width=120), clock)
    play(screen, clock)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(screen.render())
    assert "beta in reward per nat per token of mean KL; gold" in console.export_text()


def test_further_golds_and_their_limits_are_said() -> None:
    stream = io.StringIO()
    screen = PlainScreen(
        dataclasses.replace(SCOPE, limits="the limits on KL and tone"), stream, Clock()
    )
    screen.evaluated(
        EvalMetrics(
            0, 2, 20, 0.6, 0.05, 0.5, 0.04, 0.16, 2.3, (0.6,), (0.5,), {}, (),
            others={"tone": OtherGold(0.9, 0.02, (0.9,))},
        )
    )  # fmt: skip
    screen.ended(TrialOutcome(3, 1, Verdict(StopReason.DONE, "80 of 80"), 80, 0.9, False, 0.1, 20))
    first, second = stream.getvalue().splitlines()
    assert first.endswith(", tone 0.900 ± 0.020")
    assert "value 0.900, not within all the limits on KL and tone" in second


def test_a_trial_that_diverged_is_not_said_to_have_broken_a_limit() -> None:
    stream = io.StringIO()
    verdict = Verdict(StopReason.DIVERGED, "loss is not finite")
    PlainScreen(SCOPE, stream, Clock()).ended(TrialOutcome(3, 1, verdict, 30, 0.9, False, 0.1, 20))
    assert "value 0.900, not feasible [" in stream.getvalue()
