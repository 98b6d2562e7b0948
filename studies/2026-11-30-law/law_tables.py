"""The tables of README.md."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from experiment_tables import interval_words, markdown
from law_arms import DRAWS, LEVELS, SHIPPED, block_name, level_of
from law_frontier import KLS
from law_rl_less_bon import BANDS

_MEASURE_WORDS = {
    "agreement": "orders pairs as gold, select prompts (share)",
    "agreement_train": "orders pairs as gold, train prompts (share)",
    "peak_gain": "highest gold over the start",
    "end_gain": "gold over the start, at the end",
    "bon_peak_gain": "best-of-n's highest gold over the start",
    "bon_train_peak_gain": "the same on train prompts",
    "log_peak_kl": "KL where each run is highest, factor",
    "log_end_kl": "KL at the end, factor",
    "a": "a of the law",
    "b": "b of the law",
}

_WHERE = {"middle": "middle level, 8 draws", SHIPPED: "shipped proxy, 8 seeds"}


def tables(results: dict[str, Any]) -> dict[str, str]:
    """For README.md."""
    levels = {proxy.name: results["levels"][level_of(block_name(proxy, 0))] for proxy in LEVELS}
    return {
        "levels": _levels_table(levels),
        "law": _law_table(levels),
        "trends": _trends_table(results),
        "frontier": _frontier_table(results["frontier"]),
        "speed": _speed_table(results["frontier"]),
        "best-of-n": _bon_table(levels, results),
    }


def _levels_table(levels: Mapping[str, Mapping[str, Any]]) -> str:
    head = (
        "proxy",
        "right on held-out labels",
        "orders select pairs as gold",
        "train pairs",
        "highest gold over the start",
        "KL where each run is highest",
    )
    head += (
        "gold over the start, at the end",
        "KL, at the end",
        "proxy gain less gold gain, in SD",
    )
    return markdown(
        head,
        [
            (
                name,
                f"{own['label_accuracy']['mean']:.3f}",
                _words(own["agreement"]),
                _words(own["agreement_train"]),
                _words(own["peak"]["gain"]),
                _words(own["peak"]["kl"], 1),
                _words(own["end"]["gain"]),
                _words(own["end"]["kl"], 1),
                _words(own["end"]["gap_sd"]),
            )
            for name, own in levels.items()
        ],
    )


def _law_table(levels: Mapping[str, Mapping[str, Any]]) -> str:
    head = (
        "proxy",
        "a",
        "b",
        "KL of the law's peak",
        "gold over the start there",
        "p: bend",
        "p: stretches",
        "left out",
        "own thirds",
        "rest",
    )
    rows: list[tuple[str, ...]] = []
    for name, own in levels.items():
        law = own["law"]
        rows.append(
            (
                name,
                _words(law["a"]),
                _words(law["b"]),
                _peak_words(law),
                "-" if _peak_words(law) == "not identified" else f"{law['gain_peak']:.2f}",
                f"{law['bend_p']:.2g}",
                f"{law['stretch_p']:.2g}",
                f"{law['stretch_p_left_out']:.2g}",
                f"{law['stretch_p_ranked']:.2g}",
                f"{law['left']:.2f}",
            )
        )
    return markdown(head, rows)


def _peak_words(law: Mapping[str, Any]) -> str:
    """No figure where any peak would do: b can't be told from 0."""
    if law["kl_peak"] is None or law["kl_high"] is None:
        return "not identified"
    return f"{law['kl_peak']:.2g} ({law['kl_low'] or 0:.2g} to {law['kl_high']:.2g})"


def _trends_table(results: Mapping[str, Any]) -> str:
    trends = results["trends"]
    head = ["change of", *(f"{axis}: {told['step']}" for axis, told in trends.items())]
    rows: list[list[str]] = []
    for measure, words in _MEASURE_WORDS.items():
        cells = [_words(_as_factor(measure, told[measure])) for told in trends.values()]
        rows.append([words, *cells])
    return markdown(head, rows)


def _as_factor(measure: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
    if not measure.startswith("log_"):
        return found
    return {k: math.exp(v) if k in ("mean", "low", "high") else v for k, v in found.items()}


def _frontier_table(frontier: Mapping[str, Any]) -> str:
    head = [
        "proxy",
        "beta",
        *(f"at {kl:g}" for kl in KLS),
        "at the evaluations without KL",
        "at those under it",
        "second half",
    ]
    rows: list[list[str]] = []
    for where, arms in frontier.items():
        for arm, own in arms.items():
            cells = [_with_num(own["at_kl"][f"{kl:g}"]) for kl in KLS]
            cells += [
                _with_num(own["at_free"]),
                _with_num(own["at_priced"]),
                f"{_with_num(own['held'])} at {own['held']['kl']:.1f}",
            ]
            rows.append([_WHERE[where], arm.removeprefix("k1-reward "), *cells])
    return markdown(head, rows)


def _speed_table(frontier: Mapping[str, Any]) -> str:
    rows: list[list[str]] = []
    for where, arms in frontier.items():
        for arm, own in arms.items():
            cells = [_words(one) for one in own["speed"].values()]
            cells += [_words(own["kl_end"]), _words(own["peak_gain"]), _words(own["end_gain"])]
            rows.append([_WHERE[where], arm.removeprefix("k1-reward "), *cells])
    steps = next(iter(next(iter(frontier.values())).values()))["speed"]
    head = ["proxy", "beta", *(f"KL at step {step}, factor" for step in steps), "KL at the end"]
    return markdown([*head, "gold at the best stop, more", "gold at the end, more"], rows)


def _bon_table(levels: Mapping[str, Mapping[str, Any]], results: Mapping[str, Any]) -> str:
    head = ["proxy", "best-of-n: highest gold over the start", "at n", "KL", "on train prompts"]
    head += [*(f"RL less best-of-n, KL {name}" for name in BANDS), "each at its peak"]
    rows: list[list[str]] = []
    everything = dict(levels)
    if SHIPPED in results:
        everything["shipped"] = results[SHIPPED]
    for name, own in everything.items():
        bon = own["best_of_n"]
        cells = [_words(bon["peak"]["gain"]), str(bon["peak"]["n"]), f"{bon['peak']['kl']:.2g}"]
        cells.append(_words(own["best_of_n_on_train"]["gain"]))
        cells += [_with_num(bon["rl_less_bon"][band]) for band in BANDS]
        rows.append([name, *cells, _words(bon["rl_less_bon_at_peak"])])
    return markdown(head, rows)


def _words(found: Mapping[str, Any], digits: int = 2) -> str:
    return "-" if found.get("mean") is None else interval_words(found, digits)


def _with_num(found: Mapping[str, Any]) -> str:
    if found["mean"] is None:
        return f"- [{found['num']}]"
    return _words(found) if found["num"] == len(DRAWS) else f"{_words(found)} [{found['num']}]"
