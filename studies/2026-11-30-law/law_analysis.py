"""Runs, best-of-n and the proxies' facts in; what they say of the law, of beta and of best-of-n, out."""

from __future__ import annotations

from typing import Any

import pandas as pd
from law_arms import NO_KL, SHIPPED
from law_form import bend_within, fitted_law, rejections, together
from law_frontier import frontiers
from law_intervals import factor_of_draws, mean_of_draws
from law_peak import peak_of_n, peak_place
from law_rl_less_bon import best_of_n, rl_above_bon
from law_runs import Runs, bon_runs, levels_in, middle_kl, runs_of
from law_trends import bon_trend, by_agreement, trends

from kltune.statistics.arms import at_end, when_stopped
from kltune.statistics.law import LawForm

LAW_TO = 10.0
"""Nats per sequence to which the law is tested once more."""


def analyse(
    runs: pd.DataFrame, bon: pd.DataFrame, proxies: pd.DataFrame, shipped: pd.DataFrame | None
) -> dict[str, Any]:
    """What the runs say of the law, of beta and of best-of-n; intervals over draws of the proxy.

    ``shipped``: runs under the proxy that the task ships, of the study of penalties; None leaves out what they say.
    """
    # One start for all: the reference on the same prompts, of many completions.
    on_train, bon = bon[bon["split"] == "train"], bon[bon["split"] == "select"]
    start = float(bon.loc[bon["n"] == 1].drop_duplicates("draw")["gold"].mean())
    of_level = {level: runs_of(runs, level, NO_KL, start) for level in levels_in(runs)}
    curves_bon = {
        level: bon_runs(bon, level) for level in (*of_level, SHIPPED) if level in set(bon["level"])
    }
    rows = len(of_level) + (shipped is not None)  # proxies that are compared with best-of-n
    found: dict[str, Any] = {
        "runs": len(runs.groupby(["block", "arm", "seed"])),
        "start": start,
        "start_by_draw": mean_of_draws(
            bon.loc[bon["n"] == 1].drop_duplicates("draw")["gold"].to_numpy()
        ),
        "levels": {
            level: {
                **_level(own, proxies[proxies["level"] == level], len(of_level)),
                "best_of_n": best_of_n(curves_bon[level], own, rows),
                "best_of_n_on_train": peak_of_n(bon_runs(on_train, level)),
            }
            for level, own in of_level.items()
        },
    }
    found["reject"] = {
        **rejections(found["levels"]),
        "together": together(of_level, LawForm.RL),
        "within": bend_within(of_level, LAW_TO),
        "together_at_best_of_n_form": together(of_level, LawForm.BEST_OF_N),
    }
    found["trends"] = trends(of_level, curves_bon, proxies)
    for axis, told in found["trends"].items():
        told["bon_train_peak_gain"] = bon_trend(axis, on_train)
    found["by_agreement"] = by_agreement(of_level, found["levels"])
    found["frontier"] = frontiers(runs, shipped, start)
    if shipped is not None:
        own = runs_of(shipped, "arms", NO_KL, start)
        found[SHIPPED] = {
            **_level(own, proxies[proxies["level"] == SHIPPED].head(1), 1),
            "best_of_n": best_of_n(curves_bon[SHIPPED], own, rows),
            "best_of_n_on_train": peak_of_n(bon_runs(on_train, SHIPPED)),
            "bon": {
                str(n): mean_of_draws(curves_bon[SHIPPED].gain_SC[:, c])
                for c, n in enumerate(curves_bon[SHIPPED].step_C)
                if n > 1
            },
        }
    found["rl_above_bon"] = rl_above_bon(found["levels"])
    return found


def _level(own: Runs, proxies: pd.DataFrame, levels: int) -> dict[str, Any]:
    """Of one level; the gain at the peak holds at once for so many levels, all else alone."""
    gold_sd = float(proxies["gold_sd"].mean())
    proxy_end = at_end(own.proxy_SC) - own.proxy_SC[:, 0]
    gain_end = at_end(own.gain_SC)
    return {
        "trained_on": float(proxies["trained_on"].mean()),
        "label_accuracy": mean_of_draws(proxies["label_accuracy"].to_numpy()),
        "agreement": mean_of_draws(proxies["agreement"].to_numpy()),
        "agreement_train": mean_of_draws(proxies["agreement_train"].to_numpy()),
        "peak": {
            # Each draw at the evaluation where the other draws' gold is highest: unbiased.
            "gain": mean_of_draws(when_stopped(own.gain_SC), levels),
            "gain_alone": mean_of_draws(when_stopped(own.gain_SC)),
            # Each draw at its own highest: biased upwards by the noise of an evaluation.
            "highest": mean_of_draws(own.gain_SC[:, 1:].max(axis=1)),
            **peak_place(own),
        },
        "end": {
            "gain": mean_of_draws(gain_end),
            "kl": factor_of_draws(at_end(own.kl_SC)),
            "proxy_gain": mean_of_draws(proxy_end),
            "gap_sd": mean_of_draws(proxy_end - gain_end / gold_sd),
        },
        "kl_by_step": dict(zip(map(str, own.step_C), middle_kl(own.kl_SC), strict=True)),
        "fall": mean_of_draws(gain_end - when_stopped(own.gain_SC)),
        "law": fitted_law(own, LawForm.RL),
        "other_form": fitted_law(own, LawForm.BEST_OF_N)["misfit_p"],
    }
