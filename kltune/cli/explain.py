"""``kltune explain``: a topic and a person's own numbers in, one screen or JSON out."""

from __future__ import annotations

from typing import Annotated

import typer

from kltune.cli import flags

app = typer.Typer(
    help="One screen each on KL, its estimators, controllers and units, with your own numbers.",
    no_args_is_help=True,
    epilog="Example: kltune explain kl --mean -0.07 --tokens 40",
)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"must be a number (got {text!r})") from None


Policy = Annotated[str | None, typer.Option(metavar="P,P,...", help="Your policy's probabilities.")]
Reference = Annotated[
    str | None, typer.Option(metavar="Q,Q,...", help="Your reference's, for the same answers.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")]


@app.command("kl", epilog="Example: kltune explain kl --mean -0.07 --tokens 40")
def kl_command(
    mean: Annotated[
        float | None,
        typer.Option(parser=_number, metavar="NATS", help="Read a logged mean of k1 instead."),
    ] = None,
    unit: Annotated[
        str, typer.Option(metavar="U", help="The mean's: token or sequence.")
    ] = "sequence",
    tokens: Annotated[
        float, typer.Option(parser=_number, metavar="T", help="Mean tokens of an answer.")
    ] = 40,
    rows: Annotated[
        int, typer.Option(parser=flags.count, metavar="N", help="Answers in the mean.")
    ] = 16,
    top_k: Annotated[
        int | None,
        typer.Option(parser=flags.seed, metavar="K", help="Sampling was cut to K tokens."),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(parser=_number, metavar="P", help="Sampling was cut to probability P."),
    ] = None,
    policy: Policy = None,
    reference: Reference = None,
    seed: Annotated[
        int, typer.Option(parser=flags.seed, metavar="S", help="Of the samples, 0 or more.")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """What KL is, what it costs, and why a logged one can be negative."""
    from kltune.errors import SpecError
    from kltune.explain import distribution, kl, kl_screens, page
    from kltune.explain import mean as reading

    if mean is None and (top_k is not None or top_p is not None):
        flag = "--top-p" if top_k is None else "--top-k"
        raise SpecError(f"{flag}: must be given together with --mean (got no --mean)")
    if mean is not None:
        if policy is not None or reference is not None:
            raise SpecError("--mean: must not be given together with --policy and --reference")
        question = reading.MeanQuestion(mean, unit, tokens, rows, top_k, top_p)
        read = reading.explain_mean(question)
        if as_json:
            typer.echo(page.strict_json("kl-mean", read))
        else:
            page.show(kl_screens.mean_screen(read))
        return
    pair = distribution.read_pair(policy, reference)
    facts = kl.explain_kl(pair, seed)
    if as_json:
        typer.echo(page.strict_json("kl", facts))
    else:
        page.show(kl_screens.kl_screen(facts, is_example=pair.is_example))


@app.command(
    "estimators", epilog="Example: kltune explain estimators --policy .8,.2 --reference .5,.5"
)
def estimators_command(
    policy: Policy = None, reference: Reference = None, as_json: AsJson = False
) -> None:
    """Which estimator is right as a number, and which penalty pulls the right way."""
    from kltune.explain import distribution, estimators, estimators_screen, page

    pair = distribution.read_pair(policy, reference)
    facts = estimators.explain_estimators(pair)
    if as_json:
        typer.echo(page.strict_json("estimators", facts))
    else:
        page.show(estimators_screen.estimators_screen(facts, is_example=pair.is_example))


@app.command("controller", epilog="Example: kltune explain controller --kl .15 --horizon 640")
def controller_command(
    target: Annotated[
        float, typer.Option(parser=_number, metavar="NATS", help="KL to hold.")
    ] = 0.1,
    unit: Annotated[
        str, typer.Option(metavar="U", help="Of target and KL: token or sequence.")
    ] = "token",
    kl: Annotated[
        float, typer.Option(parser=_number, metavar="NATS", help="KL of the step just done.")
    ] = 0.15,
    horizon: Annotated[
        float, typer.Option(parser=_number, metavar="H", help="Time constant, sequences.")
    ] = 10_000,
    rows: Annotated[
        int, typer.Option(parser=flags.count, metavar="N", help="Completions of a step.")
    ] = 64,
    steps: Annotated[
        int, typer.Option(parser=flags.count, metavar="S", help="Steps of the run.")
    ] = 80,
    beta: Annotated[
        float, typer.Option(parser=_number, metavar="B", help="KL coefficient now.")
    ] = 0.1,
    tokens: Annotated[
        float, typer.Option(parser=_number, metavar="T", help="Mean tokens of an answer.")
    ] = 40,
    as_json: AsJson = False,
) -> None:
    """How a controller moves beta, and whether it can do so within your run."""
    from kltune.explain import controller, controller_screen, page

    question = controller.ControllerQuestion(target, unit, kl, horizon, rows, steps, beta, tokens)
    facts = controller.explain_controller(question)
    if as_json:
        typer.echo(page.strict_json("controller", facts))
    else:
        page.show(controller_screen.controller_screen(facts, question))


@app.command(
    "units",
    epilog="Example: kltune explain units --kl-seq 6 --tokens 40 --from trl-grpo",
)
def units_command(
    tokens: Annotated[
        float, typer.Option(parser=_number, metavar="T", help="Mean tokens of an answer.")
    ] = 40,
    kl_token: Annotated[
        float | None,
        typer.Option(parser=_number, metavar="NATS", help="KL per token.  [default: 0.05]"),
    ] = None,
    kl_seq: Annotated[
        float | None, typer.Option(parser=_number, metavar="NATS", help="KL per sequence instead.")
    ] = None,
    beta: Annotated[
        float, typer.Option(parser=_number, metavar="B", help="KL coefficient.")
    ] = 0.04,
    source: Annotated[
        str, typer.Option("--from", metavar="F", help="Whose beta, as in the table.")
    ] = "trl-grpo",
    sigma_r: Annotated[
        float, typer.Option(parser=_number, metavar="SD", help="Reward's std within a group.")
    ] = 0.5,
    penalty: Annotated[
        float | None, typer.Option(parser=_number, metavar="R", help="Mean KL penalty, if logged.")
    ] = None,
    horizon: Annotated[
        float, typer.Option(parser=_number, metavar="H", help="Horizon to convert.")
    ] = 640,
    rows: Annotated[
        int, typer.Option(parser=flags.count, metavar="N", help="Sequences a step, now.")
    ] = 64,
    rows_to: Annotated[
        int, typer.Option(parser=flags.count, metavar="N", help="Sequences a step, then.")
    ] = 8192,
    as_json: AsJson = False,
) -> None:
    """Your KL, beta and horizon in the units of every framework."""
    from kltune.explain import page, units, units_screen

    question = units.UnitsQuestion(
        tokens, kl_token, kl_seq, beta, source, sigma_r, penalty, horizon, rows, rows_to
    )
    facts = units.explain_units(question)
    if as_json:
        typer.echo(page.strict_json("units", facts))
    else:
        page.show(units_screen.units_screen(facts))


@app.command("recipes", epilog="Example: kltune explain recipes deepseekmath --sigma-r .4")
def recipes_command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One of them in full; none: all.")
    ] = None,
    sigma_r: Annotated[
        float, typer.Option(parser=_number, metavar="SD", help="Reward's std within a group.")
    ] = 0.5,
    tokens: Annotated[
        float, typer.Option(parser=_number, metavar="T", help="Mean tokens of an answer.")
    ] = 40,
    as_json: AsJson = False,
) -> None:
    """Published KL settings by name, with units and sources."""
    from kltune.explain import page, recipes, recipes_screen

    facts = recipes.explain_recipes(recipes.RecipesQuestion(name, sigma_r, tokens))
    if as_json:
        typer.echo(page.strict_json("recipes", facts))
    else:
        page.show(recipes_screen.recipes_screen(facts))
