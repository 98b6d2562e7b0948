"""The README's tables of the study of short and small looks, from results.json."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from experiment_tables import interval_words, markdown
from short_small_arms import MODELS
from short_small_decisions import MAIN_LOOK
from short_small_measures import GOALS, MEASURE_WORDS


def tables(results: dict[str, Any]) -> dict[str, str]:
    """For README.md."""
    return {
        "arms-stopped": _arms_table(results, "stopped"),
        "arms-at-end": _arms_table(results, "at_end"),
        "kl": _kl_table(results),
        "told": _told_table(results),
        "constants": _constants_table(results),
        "looks-stopped": _looks_table(results, "stopped"),
        "looks-at-end": _looks_table(results, "at_end"),
        "looks-stop": _stops_table(results),
        "seeds": _seeds_table(results),
        "other": _other_table(results),
    }


def _arms_table(results: Mapping[str, Any], measure: str) -> str:
    arms = list(next(iter(results["models"].values()))["arms"])
    rows: list[list[str]] = []
    for model, told in results["models"].items():
        cells = [interval_words(told["arms"][name][measure]) for name in arms]
        rows.append([MODELS[model], interval_words(told["start"]), *cells])
    return markdown(["model", "start", *arms], rows)


def _kl_table(results: Mapping[str, Any]) -> str:
    arms = list(next(iter(results["models"].values()))["arms"])
    rows: list[list[str]] = []
    for model, told in results["models"].items():
        cells = [
            f"{one['kl_stop']:.2f} at step {one['stop_step']}; {interval_words(one['kl_end'])}"
            for one in (told["arms"][name] for name in arms)
        ]
        rows.append([MODELS[model], *cells])
    return markdown(["model", *arms], rows)


def _told_table(results: Mapping[str, Any]) -> str:
    head = ["model", "judged", "highest mean", "not told from it", "pairs told apart", "half width"]
    rows: list[list[str]] = []
    for (model, own), (measure, words) in product(results["models"].items(), MEASURE_WORDS.items()):
        told = own[measure]
        rows.append(
            [
                MODELS[model],
                words,
                told["best"],
                ", ".join(told["not_told_from_best"]) or "none",
                f"{told['num_apart']} of {told['pairs']}",
                f"{told['half_width']:.2f}",
            ]
        )
    return markdown(head, rows)


def _constants_table(results: Mapping[str, Any]) -> str:
    names = list(results["constants"]["stopped"])
    words = {"random": "one of the five at random", "random_without_largest": "one but beta 5"}
    rows = [
        [
            words.get(name, f"always {name}"),
            *(interval_words(results["constants"][goal][name]) for goal in GOALS),
        ]
        for name in names
    ]
    head = ["without a look", *MEASURE_WORDS.values(), "last step, against the best at its peak"]
    return markdown(head, rows)


def _looks_table(results: Mapping[str, Any], goal: str) -> str:
    best = results["best"][goal]
    head = [
        *("looked at", "steps", "rank agreement on other seeds", "without beta 5"),
        *("gold lost, 1 seed", "4 seeds", f"4 seeds less always {_beta(best)}"),
        *("less one but 5 at random", "4 seeds choose"),
    ]
    rows: list[list[str]] = []
    for model, share, told in _target_looks(results):
        one, four = (told[goal]["seeds"][num] for num in ("1", str(MAIN_LOOK)))
        rows.append(
            [
                MODELS[model],
                f"{float(share):.0%}",
                interval_words(told[goal]["rank"]),
                interval_words(told[goal]["rank_without_largest"]),
                interval_words(one["lost"]),
                interval_words(four["lost"]),
                interval_words(four["minus_always"][best]),
                interval_words(four["minus_random_without_largest"]),
                _shares_words(four["chosen"]),
            ]
        )
    return markdown(head, rows)


def _stops_table(results: Mapping[str, Any]) -> str:
    head = [
        *("looked at", "steps", "gold lost, 1 seed", "4 seeds", "of which by the stop"),
        *("4 seeds less always .05 to the last step", "less always .15", "4 seeds stop at step"),
    ]
    rows: list[list[str]] = []
    for model, share, told in _target_looks(results):
        one, four = (told["look_stop"]["seeds"][num] for num in ("1", str(MAIN_LOOK)))
        rows.append(
            [
                MODELS[model],
                f"{float(share):.0%}",
                interval_words(one["lost"]),
                interval_words(four["lost"]),
                interval_words(four["stop_costs"]),
                *(interval_words(found) for found in four["minus_always"].values()),
                _shares_words(four["stop_steps"]),
            ]
        )
    return markdown(head, rows)


def _seeds_table(results: Mapping[str, Any]) -> str:
    head = ["looked at", "steps", "seeds", "cost"]
    head += [f"{words}: {what}" for words in MEASURE_WORDS.values() for what in _SEEDS_HEAD]
    head.append("beta and stop: gold lost")
    rows: list[list[str]] = []
    for model, share, told in _target_looks(results):
        for num, one in told["stopped"]["seeds"].items():
            row = [MODELS[model], f"{float(share):.0%}", num, f"{one['cost']:.2f}"]
            for goal in MEASURE_WORDS:
                found = told[goal]["seeds"][num]
                row += [interval_words(found["lost"]), _shares_words(found["chosen"])]
                row.append(_shares_words(found["redrawn"]))
            row.append(interval_words(told["look_stop"]["seeds"][num]["lost"]))
            rows.append(row)
    return markdown(head, rows)


_SEEDS_HEAD = ("gold lost", "chosen", "chosen by redrawn seeds")


def _other_table(results: Mapping[str, Any]) -> str:
    pairs = [
        (f"{MODELS[model]} for itself", shares)
        for model, shares in results["early"].items()
        if model != results["target"]
    ]
    if results["lora_for_full"]:
        pairs.append((f"{MODELS['medium']} for {MODELS['full']}", results["lora_for_full"]))
    head = [
        *("looked at", "steps", "cost of 4 seeds", "judged", "rank agreement on other seeds"),
        *("without beta 5", "gold lost, 4 seeds", "4 seeds choose"),
    ]
    rows: list[list[str]] = []
    for (words, shares), goal in product(pairs, MEASURE_WORDS):
        for share, told in shares.items():
            four = told[goal]["seeds"][str(MAIN_LOOK)]
            rows.append(
                [
                    words,
                    f"{float(share):.0%}",
                    f"{four['cost']:.2f}",
                    MEASURE_WORDS[goal],
                    interval_words(told[goal]["rank"]),
                    interval_words(told[goal]["rank_without_largest"]),
                    interval_words(four["lost"]),
                    _shares_words(four["chosen"]),
                ]
            )
    return markdown(head, rows)


def _target_looks(results: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Model, share and decision of every look that decides for the target, itself last."""
    target = results["target"]
    looks = {**results["small"], target: results["early"][target]}
    return [(m, share, told) for m, shares in looks.items() for share, told in shares.items()]


def _shares_words(shares: Mapping[str, float]) -> str:
    """``0.05 66 %, no KL 34 %``, the most frequent first."""
    ordered = sorted(
        (item for item in shares.items() if item[1] >= 0.005), key=lambda item: -item[1]
    )
    return ", ".join(f"{_beta(name)} {100 * share:.0f} %" for name, share in ordered)


def _beta(name: str) -> str:
    return name.removeprefix("k1-reward ")
