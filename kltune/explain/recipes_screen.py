"""What `explain recipes` grouped in, its screen out."""

from __future__ import annotations

from rich.console import Group

from kltune.explain import page
from kltune.explain.page import short
from kltune.explain.recipes import Named, RecipesFacts, Setting


def recipes_screen(facts: RecipesFacts) -> Group:
    """All settings, a line each; or everything on one."""
    if facts.asked is not None:
        return _one(facts, facts.settings[0], facts.asked)
    words = (
        f"Names for `baselines: [...]`. raw: raw reward per nat of sequence KL at a reward spread of "
        f"{short(facts.sigma_r)} (--sigma-r). *: this project's reading, no publication."
    )
    return page.stack(
        page.title("Recipes: published KL settings; a line is one setting, whatever it is called"),
        page.prose(words),
        page.columns(
            ("beta", "raw", "penalty<", "names<"),
            [
                (
                    f"{s.beta:g}",
                    f"{s.beta_reward:.3g}",
                    s.penalty,
                    ", ".join(map(_starred, s.named)) + _steering(s),
                )
                for s in facts.settings
            ],
        ),
        page.prose(
            "beta of a -reward penalty is raw reward per nat; that of a -loss penalty stands beside advantages "
            "over the group's spread. Without KL (the arm beta = 0, search.beta.zero): "
            + ", ".join(name for name, _ in facts.without_kl)
            + ". One in full: kltune explain recipes NAME."
        ),
    )


def _starred(named: Named) -> str:
    return named.name if named.is_published else f"{named.name}*"


def _steering(setting: Setting) -> str:
    if setting.target_kl_seq is None:
        return ""
    return f" ({setting.controller}, {short(setting.target_kl_seq)} nats/sequence, horizon {setting.horizon or 0:,.0f})"


def _one(facts: RecipesFacts, setting: Setting, name: str) -> Group:
    (asked,) = (named for named in setting.named if named.name == name)
    others = [_starred(named) for named in setting.named if named.name != name]
    rows = [("source", asked.source)]
    if asked.note:
        rows.append(("note", asked.note))
    rows += [
        ("beta", _beta(setting, facts.sigma_r)),
        ("penalty", f"{setting.penalty}: gradient of the {setting.gradient}"),
        ("controller", _controller(setting, facts.tokens)),
        ("same as", ", ".join(others) or page.ABSENT),
        ("in a spec", f"baselines: [{name}]"),
    ]
    return page.stack(page.title(f"Recipe {name}"), page.facts(rows))


def _beta(setting: Setting, sigma_r: float) -> str:
    if setting.beta_in == "reward":
        return f"{setting.beta:g} raw reward per nat of sequence KL"
    return (
        f"{setting.beta:g} beside advantages over the group's standard deviation = {setting.beta_reward:.3g} raw "
        f"reward per nat of sequence KL at a spread of {short(sigma_r)} (--sigma-r)"
    )


def _controller(setting: Setting, tokens: float) -> str:
    if setting.target_kl_seq is None:
        return f"{setting.controller}: beta stays"
    return (
        f"{setting.controller}: target {short(setting.target_kl_seq)} nats per sequence = "
        f"{short(setting.target_kl_token)} nats per token at {short(tokens)} tokens, horizon "
        f"{setting.horizon or 0:,.0f} sequences"
    )
