from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from fake_study import trial, write_study
from rich.console import Console

from kltune.report.answer import headline
from kltune.report.build import compose_report
from kltune.report.choice import choose
from kltune.report.hero_tiles import tiles
from kltune.report.recommend import Recommendation, recommend
from kltune.report.rows import read_study
from kltune.report.start import AgainstStart, against_start
from kltune.report.summary import summary
from kltune.screen.ending import final_summary

WORSE = (0.9, *[0.3] * 8)
NOISE = (0.5, *[0.49] * 8)
SLIGHT = (0.5, *[0.52] * 8)
BETTER = (0.2, *[0.9] * 8)


def found_in(folder: Path) -> tuple[AgainstStart, str]:
    study = read_study(folder)
    answer = recommend(study)
    assert isinstance(answer, Recommendation)
    against = against_start(study, answer)
    assert against is not None
    return against, headline(study, answer)


def test_where_no_trial_beats_the_untrained_model_that_comes_first(tmp_path: Path) -> None:
    folder = write_study(
        tmp_path, [trial(0.2, gold=WORSE, value=0.3), trial(0.5, gold=WORSE, value=0.25)]
    )
    against, text = found_in(folder)
    assert not against.beats
    assert against.is_told
    assert text.startswith(
        "No trial beats the untrained model: gold 0.900 before training, 0.300 at best after. The least harmful "
        "setting tried was k2-loss with beta"
    )
    document = compose_report(folder)
    assert document.headline.startswith("No trial beats the untrained model")
    assert document.is_doubtful
    data = summary(folder)
    assert data["beats_start"] is False
    assert data["told_from_start"] is True
    study = read_study(folder)
    answer = recommend(study)
    assert isinstance(answer, Recommendation)
    stop = next(t for t in tiles(study, choose(study, answer)) if t.label == "Stop")
    assert "gold is highest after step 0 at step" in stop.note


@pytest.mark.parametrize(
    ("gold", "style"),
    [(WORSE, "33"), (SLIGHT, "33"), (BETTER, "32")],
    ids=["worse", "slight", "better"],
)
def test_the_terminal_says_it_in_amber(gold: tuple[float, ...], style: str, tmp_path: Path) -> None:
    data = summary(write_study(tmp_path, [trial(0.2, gold=gold)]))
    file = io.StringIO()
    console = Console(
        file=file, force_terminal=True, color_system="standard", width=300, no_color=False
    )
    console.print(final_summary(data, [], next_command="kltune report x"))
    assert f"\x1b[1;{style}m{data['recommendation']['headline'][:20]}" in file.getvalue()


def test_a_difference_within_noise_is_not_told_from_the_untrained_model(tmp_path: Path) -> None:
    above, text = found_in(write_study(tmp_path / "a", [trial(0.2, gold=SLIGHT, value=0.55)]))
    assert above.beats
    assert not above.is_told
    assert text.startswith("Not told from the untrained model: gold")
    assert " Use k2-loss" in text
    below, text = found_in(write_study(tmp_path / "b", [trial(0.2, gold=NOISE, value=0.45)]))
    assert not below.beats
    assert "at best after (not told from the untrained model). The least" in text


def test_a_clear_gain_is_said_without_a_word_on_the_start(tmp_path: Path) -> None:
    folder = write_study(tmp_path, [trial(0.2, gold=BETTER)])
    against, text = found_in(folder)
    assert against.words == ""
    assert text.startswith("Use k2-loss")
    assert summary(folder)["beats_start"] is True


def test_a_winner_told_from_all_others_and_below_the_start_is_amber(tmp_path: Path) -> None:
    folder = write_study(tmp_path, [trial(0.2, gold=WORSE), trial(0.9, gold=(0.9, *[-0.9] * 8))])
    study = read_study(folder)
    answer = recommend(study)
    assert isinstance(answer, Recommendation)
    assert not answer.tied
    assert compose_report(folder).is_doubtful


def test_few_prompts_have_no_interval_in_any_twin(tmp_path: Path) -> None:
    folder = write_study(tmp_path, [trial(0.2, gold=BETTER), trial(0.0, gold=WORSE, origin="zero")])
    for path in folder.glob("trials/*/evals.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        cut = [{**row, "gold_by_prompt": row["gold_by_prompt"][:5]} for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in cut))
    data = summary(folder)
    (zero,) = data["baselines"]
    found = zero["best_minus_this"]
    assert (found["low"], found["high"], found["told_apart"]) == (None, None, False)
    assert found["no_interval"] == "5 prompts are too few for an interval"
    said = json.dumps(data["recommendation"])
    assert "5 prompts are too few for an interval" in said
    assert "interval -" not in said
    assert "gold below it (95 %" not in said
    console = Console(file=io.StringIO(), record=True, width=300)
    console.print(final_summary(data, [], next_command="kltune report x"))
    assert "(5 prompts are too few for an interval" in console.export_text()
