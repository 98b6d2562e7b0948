"""A forecast in, its sentences out: what a person who knows no statistics is told."""

from __future__ import annotations

from kltune.preview.result import Curve, Forecast, Interval, Needed, Reading, Verdict
from kltune.preview.suggest import flat_words
from kltune.trial.words import number, score

LIMIT_OF_FORECAST = (
    "This is a forecast of the KL at which gold turns, for a policy that changes each prompt's completions by the proxy "
    "alone. RL may reach a higher gold, there or further on, since it moves along other directions."
)

CURVE_NAME = {"tilt": "best policy at each beta", "best-of-n": "best of n completions"}


def headline(forecast: Forecast) -> str:
    """The answer in one sentence or two."""
    if forecast.flat:
        text = flat_words(forecast.flat)
        return f"{text[0].upper()}{text[1:]}."
    return _verdict_words(forecast.reading)


def sentences(forecast: Forecast) -> tuple[str, ...]:
    """Everything else that the curves say, most important first."""
    if forecast.flat:
        found = [agreement_words(forecast.agreement), train_words(forecast)]
        return tuple(text for text in found if text)
    found = [
        second_opinion(forecast),
        window(forecast),
        agreement_words(forecast.agreement),
        train_words(forecast),
    ]
    return (*(text for text in found if text), LIMIT_OF_FORECAST)


def _verdict_words(reading: Reading) -> str:
    gain = f"{score(reading.gain.value)} ({span(reading.gain)})"
    seen = f"{number(reading.seen_kl_seq, 2)} nats/sequence"
    match reading.verdict:
        case Verdict.TURNS:
            parted = reading.parted_kl_seq
            return (
                f"Gold is highest at a KL of {_peak(reading)}, {gain} above the reference; further on it falls while the "
                f"proxy goes on rising, clearly so from {number(parted, 2)} nats/sequence."
            )
        case Verdict.RISES:
            return (
                f"Gold rises with the proxy, clearly so from a KL of {number(reading.risen_kl_seq, 2)} nats/sequence; it is "
                f"highest at {number(reading.peak_kl_seq.value, 2)}, {gain} above the reference, and no clear fall is seen "
                f"up to {seen}, where the sample ends."
            )
        case Verdict.FALLS:
            return (
                "The proxy is useless here: gold falls as the proxy rises, clearly so from a KL of "
                f"{number(reading.parted_kl_seq, 2)} nats/sequence on, and rises nowhere before. No KL setting mends that; "
                "another proxy is needed."
            )
        case Verdict.UNCLEAR:
            return (
                f"On these prompts it can't be told whether gold rises or falls with the proxy (up to a KL of {seen}; "
                f"largest difference to the reference {gain})."
            )


def _peak(reading: Reading) -> str:
    peak = reading.peak_kl_seq
    at_most = "at most " if reading.kind == "best-of-n" else ""
    high = "beyond what was sampled" if peak.high is None else number(peak.high, 2)
    return (
        f"{at_most}{number(peak.value, 2)} nats/sequence (95 % interval {number(peak.low, 2)} to {high}; "
        f"{number(reading.peak_kl_token, 2)} nats/token)"
    )


def second_opinion(forecast: Forecast) -> str:
    """What the other curve says."""
    if len(forecast.readings) < 2:
        return ""
    other = forecast.readings[1]
    name = CURVE_NAME[other.kind]
    seen = number(other.seen_kl_seq, 2)
    words = {
        Verdict.TURNS: f"gold peaks at a KL of {_peak(other)}",
        Verdict.RISES: f"gold rises and shows no clear fall up to {seen} nats/sequence",
        Verdict.FALLS: f"gold falls from {number(other.parted_kl_seq, 2)} nats/sequence on",
        Verdict.UNCLEAR: f"neither a rise nor a fall of gold is clear up to {seen} nats/sequence",
    }
    return f"By the other curve ({name}): {words[other.verdict]}."


def window(forecast: Forecast) -> str:
    """Between which betas KL matters."""
    tilt = forecast.curve("tilt")
    shown = [point for point in tilt.points if point.knob is not None]
    if not shown:
        return f"With {forecast.subject.num_samples} completions per prompt no beta can be shown: too few of them carry the weight."
    first, last = shown[0], shown[-1]
    return (
        f"Where KL can matter: at beta {number(first.knob, 2)} (reward per nat of sequence KL) and above even the best policy "
        f"stays within {number(first.kl_seq, 2)} nats/sequence of the reference; at {number(last.knob, 2)} it is "
        f"{number(last.kl_seq, 2)} nats/sequence away, the furthest that this sample shows."
    )


def agreement_words(agreement: Interval | None) -> str:
    """How well the proxy orders completions of a prompt."""
    if agreement is None:
        return (
            "The correlation of proxy and gold within a prompt is undefined: over the reference's completions one of them "
            "never varies."
        )
    return (
        f"Within a prompt, proxy and gold correlate by {agreement.value:.2f} ({span(agreement)}): 1 would be the same order, "
        "0 none."
    ).replace("-", "−")


def train_words(forecast: Forecast) -> str:
    """Whether the proxy knows the train prompts better; empty where they were not looked at."""
    train = forecast.train
    if train is None:
        return ""
    if train.agreement is None:
        return f"On {train.num_prompts} train prompts it is undefined."
    text = f"On {train.num_prompts} train prompts it is {train.agreement.value:.2f} ({span(train.agreement)})"
    if not train.agrees_better(forecast.agreement):
        return f"{text}.".replace("-", "−")
    return (
        f"{text}, clearly higher: the proxy knows the train prompts better. RL learns on those, so it may gain far more gold, "
        "and at a higher KL, than this forecast on prompts that the proxy judges badly."
    ).replace("-", "−")


def cut_words(curve: Curve) -> str:
    """What was left out of a curve."""
    if curve.cut_knob is None:
        return ""
    return (
        f"Below beta {number(curve.points[-1].knob, 2) if curve.points[-1].knob else number(curve.cut_knob, 2)} nothing is drawn: "
        "fewer than nine prompts in ten keep 10 effective samples there, and a KL from fewer reads far too low."
    )


def needed_words(forecast: Forecast) -> tuple[str, ...]:
    """How many completions would show more."""
    return tuple(
        f"to see up to {number(need.kl_seq, 2)} nats/sequence: {_rough(need.tilt)} completions per prompt for the best "
        f"policy at each beta; {_best_of_n(need)}"
        for need in forecast.needed
    )


def _best_of_n(need: Needed) -> str:
    if need.best_of_n is None:
        return "best-of-n shows it already"
    return f"{need.best_of_n:,} for best-of-n"


def span(interval: Interval) -> str:
    """An interval's ends."""
    low = "open" if interval.low is None else score(interval.low)
    high = "open" if interval.high is None else score(interval.high)
    return f"95 % interval {low} to {high}".replace("-", "−")


def _rough(count: float) -> str:
    """Two digits: it is an extrapolation."""
    if count > 1e6:
        return "more than a million"
    digits = max(0, len(str(round(count))) - 2)
    return f"about {round(count, -digits):,.0f}"
