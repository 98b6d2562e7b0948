"""Specs and study folders in, studies as Python objects out: what ``import kltune`` gives.

```python
import kltune

study = kltune.sweep("sweeps/kitchen.yaml", trials=4, set={"trainer.steps": 12})
print(study.recommendation)  # what to type, when to stop, how sure
print(study.trials[["penalty", "beta", "value", "kl_token", "state"]])
print(study.trials.attrs["units"]["kl_token"])  # nats/token
print(study.curve(0)[["eval/gold", "eval/kl_token"]])  # any trial, by step
print(study.fits.groups)  # trials that can't be told apart
study.export("parquet", out="tables")  # or csv; units are in the files
print(study.export("verl", batch=8192, group=8))
again = kltune.open_study("studies/kitchen-grpo")  # a finished or a running one
```

To compare settings of your own with equal budget, on the same seeds and without a search:

```python
arms = kltune.run_arms(
    "sweeps/kitchen.yaml",
    arms={"none": {"beta": 0.0}, "k2": {"beta": 0.1, "penalty": "k2-loss"}, "rloo": "trl-rloo"},
    seeds=range(8),
    out="studies/three-arms",  # the same call goes on from there, or adds seeds and arms
)
print(arms.evals[["arm", "seed", "step", "eval/gold", "eval/kl_seq"]])  # arms.steps, arms.ends
print(arms.facts["arms"], arms.facts["units"])  # recipes in the spec's units
```
"""
