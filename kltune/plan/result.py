"""A plan, as values; and the same as one strict JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kltune.metrics.jsonl import SCHEMA
from kltune.plan.designs import Need, Price, Purpose, Seen
from kltune.plan.noise import Scenario
from kltune.statistics.power import ALPHA, Design, Noise


@dataclass(frozen=True, slots=True)
class PlanResult:
    """What is needed to see gold differences, and what is seen as it is."""

    name: str
    source: str
    """What the noise was measured on."""
    power: float
    prompts: int
    """Select prompts judged in the spec."""
    samples: int
    """Per prompt in the spec."""
    trials: int
    scenarios: tuple[Scenario, ...]
    purposes: tuple[Purpose, ...]
    price: Price
    seen: tuple[Seen, ...]
    needs: tuple[Need, ...]
    unknowns: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values; gold differences in gold, costs in minutes or in completions."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "source": self.source,
            "power": self.power,
            "alpha": ALPHA,
            "prompts": self.prompts,
            "samples": self.samples,
            "trials": self.trials,
            "noise": [
                {"scenario": s.name, "words": s.words, "variances_gold2": asdict(s.noise)}
                for s in self.scenarios
            ],
            "purposes": [asdict(purpose) for purpose in self.purposes],
            "price": asdict(self.price),
            "seen": [asdict(one) for one in self.seen],
            "needs": [self._need_json(need) for need in self.needs],
            "unknowns": list(self.unknowns),
        }

    def _need_json(self, need: Need) -> dict[str, Any]:
        design, cost, timed = need.design, need.cost, self.price.is_timed
        return {
            "purpose": need.purpose,
            "scenario": need.scenario,
            "difference_gold": need.difference,
            "design": None if design is None else asdict(design),
            "trials": None if design is None else design.settings * design.seeds,
            "minutes": cost / 60 if timed and cost is not None else None,
            "completions": None if timed or cost is None else cost,
        }

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> PlanResult:
        """Read what ``as_json`` wrote."""
        price = Price(**facts["price"])
        return cls(
            name=facts["name"],
            source=facts["source"],
            power=facts["power"],
            prompts=facts["prompts"],
            samples=facts["samples"],
            trials=facts["trials"],
            scenarios=tuple(
                Scenario(s["scenario"], s["words"], Noise(**s["variances_gold2"]))
                for s in facts["noise"]
            ),
            purposes=tuple(Purpose(**purpose) for purpose in facts["purposes"]),
            price=price,
            seen=tuple(Seen(**one) for one in facts["seen"]),
            needs=tuple(_need(need) for need in facts["needs"]),
            unknowns=tuple(facts["unknowns"]),
        )


def _need(facts: Mapping[str, Any]) -> Need:
    design = None if facts["design"] is None else Design(**facts["design"])
    minutes = facts["minutes"]
    cost = facts["completions"] if minutes is None else minutes * 60
    return Need(facts["purpose"], facts["scenario"], facts["difference_gold"], design, cost)
