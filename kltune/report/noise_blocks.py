"""A ranking in; the section on what can be told apart, in words, and its data, out."""

from __future__ import annotations

import math
from typing import Any

from kltune.report.confirm_blocks import find_confirmation
from kltune.report.document import Block, Bullets, Grid, Paragraph
from kltune.report.ranking import Ranking, Repeats
from kltune.report.rows import StudyRows, TrialRow
from kltune.statistics.variance import FEWEST_SEEDS, Component, Correlation, NoiseFloor
from kltune.trial.words import MISSING, number, origin_words, score, setting_short

_HEADER = ("group", "trial", "setting", "value", "the best may be above it by up to")

UNKNOWN_SEEDS = (
    "What a seed alone changes was not measured: no setting was trained on two seeds. So all intervals and "
    "groups here are on these prompts, one seed; another run of the same setting may differ by more. "
    "budget.noise_seeds (4 or more) measures it."
)


def noise_blocks(study: StudyRows, ranking: Ranking) -> tuple[Block, ...]:
    """How much is noise, the groups, and how to read them; empty before there is a candidate."""
    if not ranking.groups:
        return ()
    floor = _floor_words(ranking) if ranking.repeats else [_seeds_elsewhere(study) or UNKNOWN_SEEDS]
    blocks: list[Block] = [Bullets((*floor, *_group_words(ranking)))]
    if ranking.found is not None:
        rows = tuple(
            _cells(study, ranking, n, row) for n, group in _numbered(ranking) for row in group
        )
        blocks.append(Grid(_HEADER, rows, numeric=frozenset((0, 1, 3, 4))))
        blocks.append(Paragraph(_note(study, ranking), "note"))
    return tuple(blocks)


def noise_facts(ranking: Ranking) -> dict[str, Any]:
    """The same as plain data; what was not measured is None."""
    found, repeats = ranking.found, ranking.repeats
    return {
        "confidence": 0.95,
        "seeds_measured": repeats is not None,
        "groups": [[row.number for row in group] for group in ranking.groups],
        "every_pair_across_told_apart": [] if found is None else list(found.is_gap),
        "most_below_best": {
            str(row.number): ranking.most_below_best(row) for row in ranking.compared
        }
        if found is not None
        else {},
        "not_compared": [row.number for row in ranking.left_out],
        "noise_floor": None if repeats is None else _floor_data(repeats),
        "same_seed": None
        if ranking.pairing is None
        else {
            "paired_variance": ranking.pairing.same_seed,
            "other_seed_variance": ranking.pairing.other_seed,
            "num_pairs": ranking.pairing.num_pairs,
        },
        "correlation": None
        if ranking.shared is None
        else {
            name: None
            if (found := getattr(ranking.shared, name)) is None
            else {"value": found.value, "low": found.low, "high": found.high}
            for name in ("prompt", "draw", "seed")
        },
    }


def group_claim(ranking: Ranking) -> str:
    """What the groups rest on, in few words."""
    if ranking.repeats is None:
        return "on these prompts, one seed"
    return f"on these prompts, with the noise of {ranking.repeats.floor.num_seeds} seeds"


def _numbered(ranking: Ranking) -> list[tuple[int, tuple[TrialRow, ...]]]:
    return list(enumerate(ranking.groups, 1))


def _seeds_elsewhere(study: StudyRows) -> str | None:
    """What a confirmation measured of seeds; none where there is none."""
    result, _ = find_confirmation(study.path)
    if result is None:
        return None
    trained = [p.seed_sd for p in result.main.places if result.arms[p.arm].role != "start"]
    return (
        f"kltune confirm trained {len(trained)} settings on {len(result.seeds)} fresh seeds: single runs of one setting scatter by "
        f"{number(min(trained))} to {number(max(trained))} gold (standard deviation). The groups below rest on the search's own seed and leave that "
        "out: settings that they tell apart may tie on fresh seeds. Where the two disagree, believe the confirmation."
    )


def _floor_words(ranking: Ranking) -> list[str]:
    assert ranking.repeats is not None
    repeats, floor = ranking.repeats, ranking.repeats.floor
    numbers = ", ".join(str(row.number) for row in repeats.trials)
    items = [
        f"One setting ({origin_words(_arm(repeats).origin)}) was trained on {floor.num_seeds} seeds (trials "
        f"{numbers}), nothing else changed: values {', '.join(score(row.value) for row in repeats.trials)}. Its gold varied between seeds by {_sd_words(floor.seed)} "
        f"(standard deviation; what prompts and samples alone bring is taken out), and from prompt to prompt by "
        f"{_sd_words(floor.prompt)}. What is left of one prompt on one seed: {_sd_words(floor.rest)}.",
        f"Noise floor: two runs that differ in the seed alone part by up to {number(floor.smallest_difference)} "
        "gold in 95 of 100 cases. A smaller difference between two settings may be the seed's as well.",
    ]
    items += _few_seeds(floor)
    items.append(_shared_words(ranking))
    return items


def _few_seeds(floor: NoiseFloor) -> list[str]:
    if floor.num_seeds > FEWEST_SEEDS:
        return []
    return [
        f"{floor.num_seeds} seeds say little of how seeds vary, so the groups below are wide. More seeds "
        "(budget.noise_seeds) narrow them."
    ]


def _shared_words(ranking: Ranking) -> str:
    """What common random numbers bring, as far as it was measured."""
    texts: list[str] = []
    pairing = ranking.pairing
    if pairing is not None and pairing.other_seed > 0:
        ratio = pairing.same_seed / pairing.other_seed
        texts.append(
            f"Comparing two settings on the same seed: their difference varies from prompt to prompt by "
            f"{number(math.sqrt(pairing.same_seed))} gold, on different seeds by {number(math.sqrt(pairing.other_seed))} "
            f"({100 * (1 - ratio):.0f} % less variance with common random numbers)."
        )
    if ranking.shared is None:
        texts.append(
            "How far two settings' whole runs rise and fall together on the same seed was not measured: that takes "
            "two settings on several seeds (kltune confirm). They are taken as independent, which is the cautious side."
        )
    else:
        texts.append(
            "Correlation of two settings on the same seeds: of the prompts' difficulty "
            f"{_correlation_words(ranking.shared.prompt)}; prompt by prompt beyond that {_correlation_words(ranking.shared.draw)}; "
            f"of whole runs {_correlation_words(ranking.shared.seed)}. The groups take runs as independent, which is the cautious side."
        )
    return " ".join(texts)


def _group_words(ranking: Ranking) -> list[str]:
    groups = ranking.groups
    items: list[str] = []
    if ranking.found is None:
        items.append("Only one setting can be judged, so there is nothing to tell it apart from.")
    elif len(groups) == 1:
        items.append(
            f"None of the {len(groups[0])} settings can be told apart from the best ({group_claim(ranking)}): "
            "any of them may be the best."
        )
    else:
        items.append(
            f"{len(groups[0])} of {len(ranking.compared)} settings may be the best ({group_claim(ranking)}): group 1. "
            "Each setting of a lower group is worse than the best one of every group above it; all of this holds "
            "together with 95 % confidence."
        )
        clear = [str(n) for n, is_gap in enumerate(ranking.found.is_gap, 1) if is_gap]
        if clear:
            items.append(
                f"Below group {' and '.join(clear)} there is a clear gap: all above it are better than all below it."
            )
    if ranking.left_out:
        numbers = ", ".join(str(row.number) for row in ranking.left_out)
        items.append(
            f"Not compared, since their scores by prompt are not on record: trials {numbers}."
        )
    return items


def _note(study: StudyRows, ranking: Ranking) -> str:
    assert ranking.found is not None
    return (
        "Within a group the order is that of the trial numbers and says nothing of which is better. Two neighbouring "
        "groups may overlap: a weak setting of the upper one need not be better than a strong one of the lower one. "
        f"Value: {study.spec.objective.metric} on {ranking.found.num_prompts} select prompts. The last column: whichever setting "
        "is the best, it is not further above this one than that, in gold, with 95 % confidence."
    )


def _cells(study: StudyRows, ranking: Ranking, group: int, row: TrialRow) -> tuple[str, ...]:
    most = ranking.most_below_best(row)
    return (
        str(group),
        str(row.number),
        setting_short(row.setting, study.spec.kl_unit),
        score(row.value),
        MISSING if most is None else score(most),
    )


def _arm(repeats: Repeats) -> TrialRow:
    """The trial that the others repeat: the first by number."""
    return min(repeats.trials, key=lambda row: row.number)


def _sd_words(part: Component) -> str:
    sd, low, high = part.sd
    return f"{number(sd)} gold (95 % interval {number(low)} to {number(high)})"


def _correlation_words(found: Correlation | None) -> str:
    if found is None:
        return "not measured"
    return f"{found.value:.2f} (95 % interval {found.low:.2f} to {found.high:.2f})".replace(
        "-", "−"
    )


def _floor_data(repeats: Repeats) -> dict[str, Any]:
    floor = repeats.floor

    def part(component: Component) -> dict[str, float | None]:
        high = component.high if math.isfinite(component.high) else None
        return {"variance": component.variance, "low": component.low, "high": high}

    return {
        "trials": [row.number for row in repeats.trials],
        "seeds": [row.setting.seed for row in repeats.trials],
        "num_prompts": floor.num_prompts,
        "seed": part(floor.seed),
        "prompt": part(floor.prompt),
        "rest": part(floor.rest),
        "seed_mean_variance": floor.seed_square,
        "smallest_difference": floor.smallest_difference,
    }
