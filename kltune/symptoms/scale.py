"""KL and advantages by step in; advantages that grow with the KL out."""

from __future__ import annotations

from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.symptom import Symptom, SymptomKind
from kltune.symptoms.window import early_and_late


def pseudo_explosion(
    curve: Curve, *, factor: float = 3.0, kl_token: float = 0.05, window: int = 5
) -> Symptom | None:
    """KL that grows because the advantages do: their scale acts like a rising learning rate over a fixed beta.

    The advantages' standard deviation over the last ``window`` steps is ``factor`` times that of the first
    ones, and the KL over them is above ``kl_token`` nats per token and ``factor`` times its first.
    Advantages that are divided by their spread never show it.
    """
    advantage = early_and_late(curve, Quantity.ADVANTAGE_STD, window)
    kl = early_and_late(curve, Quantity.KL_TOKEN, window)
    if advantage is None or kl is None:
        return None
    (before, now), (kl_before, kl_now) = advantage, kl
    has_grown = before.mean > 0 and now.mean >= factor * before.mean
    if not has_grown or kl_now.mean <= max(kl_token, factor * kl_before.mean):
        return None
    detail = (
        f"advantages spread by {now.mean:.3g} over steps {now.first_step}-{now.last_step}, {before.mean:.3g} over "
        f"steps {before.first_step}-{before.last_step}, while kl went from {kl_before.mean:.2g} to "
        f"{kl_now.mean:.3g} nats/token: the scale of the reward drives the KL, so normalise it; beta is not the cause"
    )
    numbers = {
        "advantage_std_start": before.mean,
        "advantage_std": now.mean,
        "kl_token": kl_now.mean,
    }
    return Symptom(
        SymptomKind.PSEUDO_EXPLOSION,
        now.first_step,
        now.last_step,
        detail,
        numbers,
        "normalisation",
    )
