from __future__ import annotations

import dataclasses

import fake_audit
from rich.console import Console

from kltune.audit.result import AuditResult, Norms
from kltune.audit.statistics import Estimate
from kltune.audit.table import audit_table


def shown(result: AuditResult, width: int = 130) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(audit_table(result))
    return capture.get()


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_every_penalty_has_its_row_and_its_verdict() -> None:
    result = fake_audit.result()
    text = one_line(shown(result, width=200))
    for row in result.penalties:
        assert f"{row.penalty.value} " in text
        assert row.verdict.text in text


def test_kl_is_shown_in_both_units_with_their_errors() -> None:
    text = one_line(shown(fake_audit.result()))
    assert "0.456 nats/token = 1.03 nats/sequence" in text
    assert "± 0.01 and 0.03" in text
    assert "temperature 1" in text


def test_noise_has_a_limit_and_no_direction() -> None:
    lines = shown(fake_audit.result()).splitlines()
    row = next(line for line in lines if line.startswith("k1-loss"))
    assert "<" in row
    assert "noise only" in row


def test_enumerated_numbers_have_no_error_bars() -> None:
    text = shown(fake_audit.result(noise=0.0))
    row = next(line for line in text.splitlines() if line.startswith("k1-reward"))
    assert "±" not in row
    assert "1.00" in row
    assert "no sampling error" in text


def test_the_gradient_of_the_kl_is_weighed_against_the_reward() -> None:
    text = one_line(shown(fake_audit.result()))
    # .2 x .52 / 1.2
    assert (
        "at beta 0.1 (a recipe; coefficient 0.2 beside the advantages) the KL pulls 0.087" in text
    )
    assert "equally long at a coefficient of 2.3" in text


def test_a_policy_gradient_that_is_noise_is_said_to_be() -> None:
    norms = Norms("grpo", None, Estimate(0.5, 0.1), None, "beta 0", 0.0, 0.0)
    result = dataclasses.replace(fake_audit.result(), norms=norms)
    assert (norms.ratio, norms.balance) == (None, None)
    assert "policy gradient can't be told from noise" in one_line(shown(result))


def test_frameworks_and_notes_are_shown() -> None:
    text = shown(fake_audit.result())
    for word in ("actor/kl_loss", "objective/kl", "kl_penalty", "nats/sequence", "note: a note"):
        assert word in text


def test_it_fits_a_terminal_of_80_columns() -> None:
    assert max(map(len, shown(fake_audit.result(), width=80).splitlines())) <= 80


def test_the_other_direction_says_at_whose_prefixes_it_is() -> None:
    text = one_line(shown(fake_audit.result()))
    assert (
        "0.5 ± 0.02 nats/token, exact at the policy's own prefixes, not the reference's (as metric "
        "kl/forward_token)"
    ) in text
