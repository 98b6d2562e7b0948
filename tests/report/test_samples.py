from __future__ import annotations

import json
from pathlib import Path

from fake_study import trial, write_study

from kltune.report.rows import TrialRow, read_study
from kltune.report.samples import LONGEST_TEXT, cards_of, read_moments, shared_prompts, shortened

PEAKED = (0.2, 0.4, 0.9, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)


def row_of(folder: Path, gold: tuple[float, ...] = PEAKED) -> TrialRow:
    (row,) = read_study(write_study(folder, [trial(0.3, gold=gold)])).trials
    return row


def test_start_peak_and_end_are_read_each_with_what_was_kept(tmp_path: Path) -> None:
    moments = read_moments(row_of(tmp_path))
    assert [(m.name, m.step) for m in moments] == [("start", 0), ("peak", 20), ("end", 80)]
    assert {m.num_kept for m in moments} == {4}
    assert shared_prompts(moments) == tuple(f"food-{n}" for n in range(4))


def test_a_peak_at_the_end_is_one_moment(tmp_path: Path) -> None:
    rising = tuple(n / 10 for n in range(9))
    moments = read_moments(row_of(tmp_path, rising))
    assert [(m.name, m.step) for m in moments] == [("start", 0), ("peak and end", 80)]
    assert moments[1].is_at("peak")
    assert moments[1].is_at("end")
    assert not moments[1].is_at("start")


def test_a_prompt_that_was_not_kept_at_every_moment_is_not_shared(tmp_path: Path) -> None:
    row = row_of(tmp_path)
    path = row.folder / "samples.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    kept = [s for s in lines if (s["step"], s["prompt_id"]) != (20, "food-0")]
    path.write_text("".join(json.dumps(s) + "\n" for s in kept), encoding="utf-8")
    assert shared_prompts(read_moments(row)) == ("food-1", "food-2", "food-3")


def test_cards_say_scores_kl_how_they_ended_and_what_changed(tmp_path: Path) -> None:
    moments = read_moments(row_of(tmp_path))
    start, peak, end = cards_of(moments, "food-0")
    assert [c.title for c in (start, peak, end)] == [
        "start (step 0)",
        "peak (step 20)",
        "end (step 80)",
    ]
    for part in ("gold ", "proxy ", "KL ", "nats in 14 tokens", "ended by itself"):
        assert part in start.numbers
    assert start.change == ""
    assert peak.change.startswith("since the start: gold ")
    golds = [m.by_prompt["food-0"]["gold"] for m in moments]
    assert f"since the peak: gold {golds[2] - golds[1]:+.3f}, proxy " in end.change


def test_a_completion_that_was_cut_says_so_and_missing_scores_are_no_change(tmp_path: Path) -> None:
    row = row_of(tmp_path)
    path = row.folder / "samples.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for sample in lines:
        sample |= {"ended": False, "proxy": None, "non_finite": ["proxy"]}
    path.write_text("".join(json.dumps(s) + "\n" for s in lines), encoding="utf-8")
    card = cards_of(read_moments(row), "food-0")[-1]
    assert card.numbers.endswith("cut at the length limit")
    assert "proxy –" in card.numbers
    assert "proxy" not in card.change


def test_lost_samples_leave_nothing(tmp_path: Path) -> None:
    row = row_of(tmp_path)
    (row.folder / "samples.jsonl").unlink()
    assert read_moments(row) == ()
    assert shared_prompts(()) == ()


def test_a_long_text_says_how_much_was_left_out() -> None:
    text = shortened("w" * 10_240)
    assert len(text) < LONGEST_TEXT + 60
    assert text.endswith("(10,240 characters in all)")
