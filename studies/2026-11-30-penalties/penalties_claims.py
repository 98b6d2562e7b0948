"""The published findings: whether each holds here."""

from __future__ import annotations

from experiment_intervals import told
from penalties_arms import K1, NO_KL
from penalties_data import Found


def claims(found: Found) -> Found:
    """The published findings; the first three by rules that were written before the data, the rest afterwards."""
    settings, best = found["settings"], found["best_beta"]
    about_k1: Found = {}
    if K1 in best:
        about_k1["k1-reward is best"] = {how: _is_best(best, how) for how in ("end", "stopped")}
    idle = [name for name in settings if name.startswith("k1-loss")]
    return {
        **about_k1,
        "k3-reward collapses": _collapses(settings, "k3-reward"),
        "k1-loss does nothing": {name: _idle(found, name, "kl_end") for name in idle},
        "afterwards": {
            "k1-loss does nothing": {name: _idle(found, name, "kl_run") for name in idle},
            "k1-loss collapses": _collapses(settings, "k1-loss"),
            "k3-loss is below k1-reward": _below(best, "k3-loss"),
            "the rule of k1-loss": {how: _rule(found, f"kl_{how}") for how in ("end", "run")},
        },
    }


def _is_best(best: Found, how: str) -> Found:
    """Holds where every other penalty lies below k1-reward; does not where one lies above it."""
    others = {p: one[how]["to_k1_reward"] for p, one in best.items() if p not in (K1, NO_KL)}
    where = {p: told(one) for p, one in others.items()}
    holds = all(word == "below" for word in where.values())
    word = "holds" if holds else "does not" if "above" in where.values() else "can't be told"
    return {
        "verdict": word,
        "where": where,
        "largest_half": max(one["half"] for one in others.values()),
        "smallest_half": min(one["half"] for one in others.values()),
    }


def _below(best: Found, penalty: str) -> Found:
    """Holds where the penalty lies below k1-reward, each at its best beta; does not where it lies above."""
    words = {"below": "holds", "above": "does not", "untold": "can't be told"}
    return {
        how: {"verdict": words[told(one["to_k1_reward"])], "to_k1_reward": one["to_k1_reward"]}
        for how, one in best.get(penalty, {}).items()
        if "to_k1_reward" in one
    }


def _collapses(settings: Found, penalty: str) -> Found:
    """Holds where gold ends below its start; does not where it ends above it."""
    words = {"below": "holds", "above": "does not", "untold": "can't be told"}
    return {
        name: {"verdict": words[told(one["gold_change"])], "gold_change": one["gold_change"]}
        for name, one in settings.items()
        if name.startswith(penalty)
    }


def _idle(found: Found, name: str, measure: str) -> Found:
    """Not contradicted where KL can't be told from no KL's, but can from that of k1-reward of the same beta.

    Does not where KL can be told from no KL's.
    """
    to_none = found["to_none"][name][measure]
    to_k1 = found["to_k1_reward"].get(name, {}).get(measure)
    if told(to_none, 1.0) != "untold":
        word = "does not"
    else:
        is_apart = to_k1 is not None and told(to_k1, 1.0) == "above"
        word = "not contradicted" if is_apart else "can't be told"
    return {"verdict": word, "to_none": to_none, "to_k1_reward": to_k1}


def _rule(found: Found, measure: str) -> Found:
    """Which settings that rule would let pass, k1-loss or not: whether it could have said no."""
    names = list(found["to_none"])
    return {
        "settings": len(names),
        "not_told_from_none": [
            name for name in names if told(found["to_none"][name][measure], 1.0) == "untold"
        ],
        "passes": [
            name for name in names if _idle(found, name, measure)["verdict"] == "not contradicted"
        ],
    }
