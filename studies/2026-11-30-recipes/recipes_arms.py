"""Names of the settings of the study of recipes, and how each was published."""

NO_KL = "no KL"
TUNED = "k1-reward 0.15"
LATE = "aggressive: 0.1, h 20000"
"""Run after the others had been looked at: left out of what holds all at once, compared alone."""
PUBLISHED = {
    NO_KL: "DAPO, Dr. GRPO, OLMo 3",
    TUNED: "not published: within the range that held in studies/2026-11-29-kitchen",
    "trl-ppo-0.11": "0.2, adaptive to 6 nats/sequence, horizon 10,000",
    "comedy-high": "0.1 in the reward",
    "stiennon": "0.05 in the reward; RLOO, Tulu 3 PPO",
    "instructgpt": "0.02 in the reward",
    "verl-ppo": "0.001 in the reward; Bai et al. 2022",
    "trl-grpo-0.18": "0.04 in the loss, k3; DeepSeekMath",
    "tulu3-grpo": "0.01 in the loss, k3",
    "deepseek-r1": "0.001 in the loss, k3",
    "target 7, read per token": "KL 5 to 10 'per token'; x1.2 / x0.8 beyond +-20 %",
    "target 7, read per sequence": "the same as what it was, nats/sequence",
    "target 0.2, x1.5": "0.1 to 0.5 nats/token; x1.5 / :1.5 every 10 steps",
    "target 0.03, x1.2 every 50": "0.01 to 0.05 nats/token; x1.2 / :1.2 every 50 steps on an EMA",
    "conservative: 0.03, h 5000": "0.002 adaptive to 0.03 nats/token, horizon 5,000",
    LATE: "0.0005 adaptive to 0.1 nats/token, horizon 20,000; run late",
    "conservative, gain 0.5": "the same with a horizon that can act, 128",
    "warm-up 0.005 to 0.02": "0.005 for a tenth of the run, then 0.02",
    "target = warm-up median": "KL of the first tenth becomes the target, horizon 640",
    "target 0.1, 0.05, 0.03": "three-phase target, nats/token, horizon 128",
}
"""The README's rows, in this order."""
