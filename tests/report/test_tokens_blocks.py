from __future__ import annotations

import json
from pathlib import Path

from fake_study import trial, write_study
from tokens_case import with_tokens

from kltune.report.build import build_report
from kltune.report.document import Block, Facts, Figures, Grid, Paragraph
from kltune.report.page import escaped
from kltune.report.rows import read_study
from kltune.report.tokens_blocks import token_blocks, token_facts

PEAKED = (0.2, 0.4, 0.9, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)


def facts_of(blocks: tuple[Block, ...]) -> dict[str, str]:
    return dict(next(block for block in blocks if isinstance(block, Facts)).pairs)


def test_each_trial_has_facts_drawings_and_outliers(tmp_path: Path) -> None:
    best, worst = with_tokens(tmp_path, [trial(0.3, gold=PEAKED), trial(0.0, gold=PEAKED)])
    blocks = token_blocks(best, worst)
    assert [type(block) for block in blocks] == [Facts, Figures, Grid] * 2 + [Paragraph]
    facts = facts_of(blocks)
    assert facts["trial"] == "Recommended: trial 0"
    # 64 x 0.78, 32 x 2.34, 3 x 0.78 nats in the mean of steps 76 to 80
    assert facts["by position"] == (
        "end (steps 76 to 80): the first 2 tokens hold half of the KL (97 % of all tokens stand there); "
        "densest at token 1 with 2.34 nats/token"
    )
    assert facts["by token"].startswith("step 80: median 0.08, 99 % quantile 72, largest 160 nats")
    assert "KL and gold -0.300 (evaluation at step 80)" in facts["score and KL"]
    assert "KL and proxy in the rollouts 0.250 (mean over the steps)" in facts["score and KL"]
    assert facts["KL in the gradient"] == "highest 36 % (step 71), last 36 % (step 71)"
    without = dict([b for b in blocks if isinstance(b, Facts)][1].pairs)
    assert without["trial"] == "Most over-optimised: trial 1"
    assert without["KL in the gradient"] == "none: beta is 0"


def test_a_trial_that_is_both_is_shown_once(tmp_path: Path) -> None:
    (row,) = with_tokens(tmp_path, [trial(0.3)])
    assert sum(isinstance(block, Facts) for block in token_blocks(row, row)) == 1


def test_a_study_that_recorded_nothing_says_so_in_one_line(tmp_path: Path) -> None:
    (row,) = read_study(write_study(tmp_path, [trial(0.3)])).trials
    (only,) = token_blocks(row, row)
    assert isinstance(only, Paragraph)
    assert "was not recorded" in only.text
    assert token_facts(row, row) == []


def test_without_trials_there_is_no_section() -> None:
    assert token_blocks(None, None) == ()
    assert token_facts(None, None) == []


def test_one_trial_of_two_without_a_record_is_named(tmp_path: Path) -> None:
    best, worst = with_tokens(tmp_path, [trial(0.3), trial(0.0)])
    (worst.folder / "tokens.jsonl").unlink()
    texts = [b.text for b in token_blocks(best, worst) if isinstance(b, Paragraph)]
    assert texts[0].startswith("Most over-optimised: trial 1. Where in the completions")


def test_short_completions_and_short_trainings_are_told(tmp_path: Path) -> None:
    (row,) = with_tokens(tmp_path, [trial(0.3, steps=1)], edges=(0, 1))
    assert facts_of(token_blocks(row, None))["by position"].startswith(
        "end (step 1): the first token holds half of the KL (100 % of all tokens stand there)"
    )


def test_the_models_text_is_shown_on_one_line_and_can_not_become_markup(tmp_path: Path) -> None:
    texts = ("<script>alert(1)</script>\n", "<b>\r\n|", "x" * 500)
    rows = with_tokens(tmp_path, [trial(0.3)], texts=texts)
    grid = next(block for block in token_blocks(rows[0], None) if isinstance(block, Grid))
    cell = grid.rows[0][3]
    assert cell.startswith("<script>alert(1)</script>⏎⟦<b>⏎|⟧xxx")
    assert cell.endswith("x…")
    assert len(cell) < 120
    build_report(tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert escaped("<script>alert(1)</script>⏎⟦<b>") in page
    assert "<script>" not in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_the_json_twin_holds_profiles_and_outliers(tmp_path: Path) -> None:
    with_tokens(tmp_path, [trial(0.3, gold=PEAKED)])
    build_report(tmp_path)
    (found,) = json.loads((tmp_path / "report.json").read_text())["tokens"]
    assert found["trial"] == 0
    assert [p["moment"] for p in found["profiles"]] == ["start", "peak of gold", "end"]
    assert found["profiles"][0]["edges"] == [0, 1, 2, 4]
    assert found["outliers"][0]["kl"] == 2.5
    assert found["grad_kl_share"][-1][0] == 71
