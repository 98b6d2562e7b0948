"""Tables of README.md, from results.json."""

from __future__ import annotations

from typing import Any

from experiment_intervals import told
from experiment_tables import interval_words, markdown
from penalties_claims_table import claims_table
from penalties_data import Found
from penalties_matched import ENOUGH, LEVELS


def tables(results: dict[str, Any]) -> dict[str, str]:
    """The README's tables by name."""
    return {
        "settings": _settings_table(results),
        "same-beta": _same_beta_table(results),
        "held": _held_table(results),
        "dial": _dial_table(results["dial"]),
        "best-beta": _best_table(results),
        "matched-k1": _matched_table(results["matched"]["to_k1_reward"]),
        "matched-none": _matched_table(results["matched"]["to_none"]),
        "pooled-none": _pooled_table(results["matched"]["pooled_to_none"]),
        "reached": _reached_table(results),
        "stability": _stability_table(results),
        "claims": claims_table(results["claims"]),
    }


def _words(found: Found | None, digits: int = 2) -> str:
    """With a star where a difference is told apart from 0."""
    return (
        ""
        if found is None
        else interval_words(found, digits) + ("*" if told(found) != "untold" else "")
    )


def _factor_words(found: Found | None) -> str:
    """With a star where a ratio is told apart from 1."""
    return (
        ""
        if found is None
        else interval_words(found) + ("*" if told(found, 1.0) != "untold" else "")
    )


def _settings_table(results: Found) -> str:
    head = [
        "setting",
        "KL at the end, nats/sequence",
        "KL, times that of no KL",
        "gold at the end",
        "less no KL",
        "gold when stopped",
        "less no KL",
        "stop at step",
        "proxy at the end",
    ]
    rows = []
    for name, one in results["settings"].items():
        other = results["to_none"].get(name, {})
        rows.append(
            [
                name,
                interval_words(one["kl_end"]),
                _factor_words(other.get("kl_end")),
                interval_words(one["gold_end"]),
                _words(other.get("gold_end")),
                interval_words(one["gold_stopped"]),
                _words(other.get("gold_stopped")),
                one["stop_step"],
                interval_words(one["proxy_end"]),
            ]
        )
    return markdown(head, rows)


def _same_beta_table(results: Found) -> str:
    head = [
        "setting, against k1-reward of its beta",
        "gold at the end",
        "gold when stopped",
        "KL at the end, times",
    ]
    rows = [
        [name, _words(one["gold_end"]), _words(one["gold_stopped"]), _factor_words(one["kl_end"])]
        for name, one in results["to_k1_reward"].items()
    ]
    return markdown(head, rows)


def _held_table(results: Found) -> str:
    head = [
        "penalty, beta .15 and .5 together",
        "KL at the end, times that of no KL",
        "KL along the run, times that of no KL",
        "KL at the end, times that of k1-reward",
        "KL along the run, times that of k1-reward",
    ]
    rows = []
    for p, end in results["pooled_kl"]["end"].items():
        run = results["pooled_kl"]["run"][p]
        found = (
            end["to_none"],
            run["to_none"],
            end.get("to_k1_reward"),
            run.get("to_k1_reward"),
        )
        rows.append([p, *(_factor_words(one) for one in found)])
    return markdown(head, rows)


def _dial_table(found: Found) -> str:
    head = [
        "beta",
        "penalty",
        "KL along the run, times",
        "less in seeds",
        "that factor over k1-reward's",
        "KL at the end, times",
        "that factor over k1-reward's",
    ]
    rows = [
        [
            betas,
            p,
            _factor_words(run["factor"]),
            f"{run['seeds_lower']} of {run['seeds']}",
            _factor_words(run.get("to_k1_reward")),
            _factor_words(found["end"][betas][p]["factor"]),
            _factor_words(found["end"][betas][p].get("to_k1_reward")),
        ]
        for betas, own in found["run"].items()
        for p, run in own.items()
    ]
    return markdown(head, rows)


def _best_table(results: Found) -> str:
    head = [
        "penalty, at its best beta",
        "gold at the end",
        "less k1-reward",
        "gold when stopped",
        "less k1-reward",
    ]
    rows = []
    for name, one in results["best_beta"].items():
        cells = [
            [interval_words(own["gold"]), _words(own.get("to_k1_reward"))] for own in one.values()
        ]
        rows.append([name, *cells[0], *cells[1]])
    return markdown(head, rows)


def _matched_table(found: Found) -> str:
    if not found:
        return ""
    head = ["KL, nats/sequence", "penalty", "seeds (pairs of runs)", "gold", "proxy"]
    rows = [
        [
            level,
            p,
            f"{one['seeds']} ({one['pairs']})",
            *(_words(one.get(c)) or "too few" for c in ("gold", "proxy")),
        ]
        for level, own in found["levels"].items()
        for p, one in own.items()
    ]
    return markdown(head, rows)


def _pooled_table(found: Found) -> str:
    if not found:
        return ""
    head = ["KL, nats/sequence", "gold, read between evaluations", "both read equally coarsely"]
    head += ["the first, on the pairs of the second", "the reading's part in it", "proxy, as first"]
    rows = [
        [
            level,
            *(_counted(cell["gold"][key]) for key in ("between", "coarse")),
            *(_counted(cell["gold"][key]) for key in ("between_there", "flattery")),
            _counted(cell["proxy"]["between"]),
        ]
        for level, cell in found["levels"].items()
    ]
    return markdown(head, rows)


def _counted(found: Found) -> str:
    """With how many seeds and pairs of runs there are."""
    if found["num"] < ENOUGH:
        return f"too few [{found['num']}, {found['pairs']}]"
    return f"{_words(found)} [{found['num']}, {found['pairs']}]"


def _reached_table(results: Found) -> str:
    head = ["setting: seeds that reached it, mean step", *(f"{level:g} nats" for level in LEVELS)]
    head.append("gold at the end less gold when the run first had its last KL")
    rows = [
        [
            name,
            *(f"{at['seeds']}, {at['step']:.0f}" if at["seeds"] else "0" for at in own.values()),
            _words(results["later"][name]),
        ]
        for name, own in results["reached"].items()
    ]
    return markdown(head, rows)


def _stability_table(results: Found) -> str:
    head = [
        "setting",
        "sd of gold at the end over seeds",
        "sd, times that of no KL",
        "worst seed",
        "seeds that end below their start",
        "largest KL at an evaluation",
        "runs that leapt",
        "tokens at the end",
        "entropy at the end, nats/token",
    ]
    rows = []
    for name, one in results["settings"].items():
        texts = results["texts"][name]
        rows.append(
            [
                name,
                interval_words(one["sd"]),
                _factor_words(results["to_none"].get(name, {}).get("sd")),
                f"{one['worst']:.2f}",
                f"{one['seeds_below_start']} of {results['seeds']}",
                f"{one['kl_largest']:.1f}",
                len({leap["seed"] for leap in results["leaps"][name]}),
                interval_words(texts["tokens"], 1),
                interval_words(texts["entropy_token"]),
            ]
        )
    return markdown(head, rows)
