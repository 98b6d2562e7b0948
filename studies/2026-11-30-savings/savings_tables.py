"""The README's tables of what a sweep saves, from results.json."""

from __future__ import annotations

from typing import Any

from experiment_tables import interval_words, markdown


def tables(results: dict[str, Any]) -> dict[str, str]:
    """The README's tables by name."""
    return {
        "ways": _ways_table(results),
        "random": _random_table(results),
        "sweeps": _sweeps_table(results["per_sweep"]),
        "known": _known_table(results["per_known"]),
    }


def _ways_table(results: dict[str, Any]) -> str:
    head = ["how setting and stop are chosen", "settings", "gold on fresh seeds"]
    head += ["the sweep's is above by", "stopping gives, over running to the end"]
    rows: list[list[object]] = []
    for name, one in results["ways"].items():
        ahead, stop = results["sweep_minus"].get(name), results["stopping"].get(name)
        rows.append([name, one["settings"], interval_words(one), _or_dash(ahead), _or_dash(stop)])
    return markdown(head, rows)


def _random_table(results: dict[str, Any]) -> str:
    head = ["random settings tried, one run each", "steps", "gold of the best on other seeds"]
    rows = [
        [num, one["steps"], interval_words(one["gold"]), interval_words(one["sweep_minus"])]
        for num, one in results["best_of_random"].items()
    ]
    swept, steps = results["ways"]["sweep"], results["cost"]["steps"]["mean"]
    rows.append(["a sweep", f"{steps:.0f}", interval_words(swept), "-"])
    return markdown([*head, "the sweep's is above by"], rows)


def _sweeps_table(sweeps: dict[str, Any]) -> str:
    head = ["sweep of seed", "its choice", "stop between steps", "it said", "on fresh seeds"]
    rows = [
        [
            seed,
            f"{one['penalty'] or 'no KL'}, beta {one['beta']:.2g} ({one['origin']})",
            f"{one['first_step']} and {one['last_step']}",
            interval_words({"mean": one["said"], "low": one["low"], "high": one["high"]}),
            f"{one['fresh']:.2f} (lowest {one['lowest']:.2f})",
        ]
        for seed, one in sweeps.items()
    ]
    return markdown(head, rows)


def _known_table(known: dict[str, Any]) -> str:
    head = ["setting", "gold at its end", "stopped where another run was best"]
    rows = [
        [name, interval_words(one["to_its_end"]), interval_words(one["stopped"])]
        for name, one in known.items()
    ]
    return markdown(head, rows)


def _or_dash(found: dict[str, float] | None) -> str:
    return "-" if found is None else interval_words(found)
