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
"""
