"""A study in; the section on what was forecast without training and how far trials came along it, and its data, out."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from statistics import median
from typing import Any

from kltune.errors import StudyError
from kltune.preview.result import FILE, Forecast, Interval, Verdict, read_forecast
from kltune.preview.words import cut_words, headline, needed_words, sentences
from kltune.report.document import Block, Bullets, Figures, Grid, Paragraph
from kltune.report.forecast import LEAST_KL, Efficiency, Outcome, efficiencies, outcome
from kltune.report.forecast_figure import forecast_figures
from kltune.report.rows import StudyRows
from kltune.trial.words import number, score, setting_short

_HEADER = (
    "trial",
    "setting",
    "step",
    "KL (nats/sequence)",
    "proxy gained",
    "most at this KL",
    "KL efficiency",
)

_NOTE = (
    "KL efficiency: the proxy that a trial gained over its start, as a share of what the best policy gains at the same KL "
    "(± one standard error of the trial's proxy). Shown at the checkpoint that the trial is judged by where the sample "
    "supports its KL, else at the furthest that it does; trials with no such checkpoint are left out. It is about the proxy: "
    "a policy of low efficiency may have the higher gold."
)


def forecast_blocks(study: StudyRows) -> tuple[Block, ...]:
    """The forecast, how it turned out, and KL efficiency; empty where no preview lies in the folder.

    A preview that can't be used is skipped, with a note.
    """
    forecast = _usable(study)
    if isinstance(forecast, str):
        return (Paragraph(forecast, "note"),)
    if forecast is None:
        return ()
    subject = forecast.subject
    about = (
        f"From {subject.num_samples} completions of the reference for each of {subject.num_prompts} {subject.split} prompts, "
        "scored by proxy and gold; nothing was trained for it"
    )
    if subject.policies:
        about += f". Weighed in: {subject.samples_per_policy} completions per prompt of each of {', '.join(subject.policies)}"
    came = outcome(study)
    items = [headline(forecast), *([] if came is None else [outcome_words(forecast, came)])]
    blocks: list[Block] = [
        Paragraph(f"{about}."),
        Bullets((*items, *sentences(forecast))),
        Figures(forecast_figures(study, forecast)),
    ]
    rows = efficiencies(study, forecast)
    if rows:
        blocks += [
            Paragraph(efficiency_words(rows, forecast)),
            Grid(_HEADER, _cells(study, rows), numeric=frozenset((0, 2, 3, 4, 5, 6))),
            Paragraph(_NOTE, "note"),
        ]
    small = [*(cut_words(curve) for curve in forecast.curves), *forecast.notes]
    small += [f"{text[0].upper()}{text[1:]}." for text in needed_words(forecast)]
    blocks += [Paragraph(" ".join(text for text in small if text), "note")]
    return tuple(blocks)


def forecast_facts(study: StudyRows) -> dict[str, Any] | None:
    """The same as plain data; none where no preview lies in the folder, a note where it can't be used."""
    forecast = _usable(study)
    if isinstance(forecast, str):
        return {"skipped": forecast}
    if forecast is None:
        return None
    came = outcome(study)
    return {
        "headline": headline(forecast),
        "verdict": forecast.reading.verdict.value,
        "peak_kl_seq": asdict(forecast.reading.peak_kl_seq),
        "agreement": _plain(forecast.agreement),
        "agreement_train": None if forecast.train is None else _plain(forecast.train.agreement),
        "seen_kl_seq": forecast.reading.seen_kl_seq,
        "suggested": {
            "beta": forecast.suggestion.beta,
            "target_kl": forecast.suggestion.target_kl,
            "kl_unit": forecast.suggestion.kl_unit,
        },
        "trials_peak": None if came is None else asdict(came),
        "kl_efficiency": [
            {**asdict(row), "share": row.share} for row in efficiencies(study, forecast)
        ],
    }


def _plain(interval: Interval | None) -> dict[str, Any] | None:
    return None if interval is None else asdict(interval)


def _usable(study: StudyRows) -> Forecast | str | None:
    """The preview in the study's folder; none where there is none, a sentence where it can't be used."""
    again = f"run kltune preview {shlex.quote(str(study.path))} again"
    try:
        forecast = read_forecast(study.path)
    except StudyError as error:
        return f"No forecast is shown, since {FILE} can't be used: {again}. ({error})"
    model = study.spec.model.base
    if forecast is not None and forecast.subject.model != model:
        return (
            f"No forecast is shown, since {FILE} is of another model ({forecast.subject.model}; this study's: {model}): "
            f"{again}."
        )
    return forecast


def outcome_words(forecast: Forecast, came: Outcome) -> str:
    """Forecast and trials side by side."""
    reading = forecast.reading
    text = (
        f"What came: over {came.num_trials} trials gold peaked at {number(came.median_kl_seq, 2)} nats/sequence (median), "
        f"{score(came.median_gain)} above the start (median)"
    ).replace("-", "−")
    if reading.verdict is Verdict.TURNS:
        place = _place(reading.peak_kl_seq, came.median_kl_seq)
        text += f"; the forecast was {number(reading.peak_kl_seq.value, 2)}, so it came {place}"
    return f"{text}.{_left_out(came)}"


def _left_out(came: Outcome) -> str:
    reasons = (
        (
            came.num_near,
            f"whose gold is highest within {LEAST_KL:g} nats/sequence of the reference",
        ),
        (came.num_unjudged, "with no start or no checkpoint to be judged by"),
    )
    texts = [f"{count} {why}" for count, why in reasons if count]
    if not texts:
        return ""
    all_of_them = came.num_trials + came.num_near + came.num_unjudged
    return f" Left out of {all_of_them} trials: {', '.join(texts)}."


def _place(peak: Interval, came: float) -> str:
    if peak.low is not None and came < peak.low:
        return "earlier than forecast"
    if peak.high is not None and came > peak.high:
        return "later than forecast, as RL often does"
    return "within the forecast's interval"


def efficiency_words(rows: tuple[Efficiency, ...], forecast: Forecast) -> str:
    """The middle, and the best, in one sentence."""
    best = max(rows, key=lambda row: row.share)
    middle = median(row.share for row in rows)
    return (
        f"KL efficiency between {LEAST_KL:g} and {number(forecast.curve('tilt').seen_kl_seq, 2)} nats/sequence, over {len(rows)} "
        f"trials: {100 * middle:.0f} % (median); highest in trial {best.trial}, {100 * best.share:.0f} %."
    ).replace("-", "−")


def _cells(study: StudyRows, rows: tuple[Efficiency, ...]) -> tuple[tuple[str, ...], ...]:
    settings = {row.number: setting_short(row.setting, study.spec.kl_unit) for row in study.trials}
    ordered = sorted(rows, key=lambda row: -row.share)
    return tuple(
        (
            str(row.trial),
            settings[row.trial],
            str(row.step),
            number(row.kl_seq),
            score(row.gain).replace("-", "−"),
            score(row.optimum),
            f"{100 * row.share:.0f} ± {100 * row.share_se:.0f} %".replace("-", "−"),
        )
        for row in ordered
    )
