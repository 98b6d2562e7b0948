"""Causes of a strange run in words, each with the first thing to do."""

from __future__ import annotations

from typing import Final

from kltune.diagnose.result import Cause

SET_UP: Final = Cause(
    "set_up",
    "policy and reference are not the same model at the start, or not read alike: other weights or adapter, tokenizer, "
    "template, temperature or mask",
    "Before anything else compute the KL of the untrained policy on a few samples: it must be 0 within rounding. Check "
    "tokenizer, mask and prompt template in this order.",
)
MASK: Final = Cause(
    "mask",
    "prompt or padding tokens are counted, or the log-probs are shifted by one position",
    "Count the valid tokens of three completions by hand (up to and including the first stop token) and compare with the "
    "length in the log.",
)
LEARNING_RATE_TOO_HIGH: Final = Cause(
    "learning_rate_too_high",
    "the learning rate moves the policy further in a few steps than any reward asks for",
    "Start again from the last good checkpoint (or the beginning) with a tenth of the learning rate; leave beta as it is "
    "until that is known.",
)
LEARNING_RATE_TOO_LOW: Final = Cause(
    "learning_rate_too_low",
    "the learning rate is too small, or the gradient never reaches the weights",
    "Check that the trained weights change over a step at all, then raise the learning rate threefold.",
)
BETA_TOO_SMALL: Final = Cause(
    "beta_too_small",
    "the penalty is too cheap for this reward, so the policy goes as far as training takes it",
    "Stop at the last checkpoint before the KL ran away, and double beta (or lower the target) for the next run.",
)
BETA_TOO_LARGE: Final = Cause(
    "beta_too_large",
    "the penalty outweighs anything that the reward can pay",
    "Lower beta tenfold (or raise the target) and look whether KL and reward begin to move.",
)
BETA_ZERO: Final = Cause(
    "beta_zero",
    "beta is 0, so the trainer doesn't run the reference",
    "That may be meant. Log the KL all the same (a tiny beta such as 1e-6 makes most trainers run the reference): without "
    "it over-optimisation can't be seen.",
)
NO_SPREAD: Final = Cause(
    "no_group_spread",
    "all completions of a prompt get the same reward, so every advantage is 0",
    "Read the rewards of one group: if the reward is constant mend it; else take harder or easier prompts, more "
    "completions per prompt or a higher temperature.",
)
ADVANTAGES_ZERO: Final = Cause(
    "zero_advantages",
    "rewards differ but the advantages are 0: clipped, masked or normalised away",
    "Print the rewards and advantages of one batch; look at reward clipping and masks of truncated completions.",
)
REWARD_SOLVED: Final = Cause(
    "reward_solved",
    "the reward is at its ceiling for nearly all prompts: nothing is left to learn from it",
    "Stop here, or go on with prompts that the policy still fails.",
)
REWARD_SCALE: Final = Cause(
    "reward_scale",
    "the reward's scale does not fit beta: rewards are tiny, or the KL counts per sequence where beta was meant per token",
    "Scale the reward to a spread of about 1 or divide beta by the ratio above; check that beta's unit is the trainer's.",
)
PROXY_EXPLOITED: Final = Cause(
    "proxy_exploited",
    "the policy found something that the reward pays and that nobody wants",
    "Read ten completions of the last steps. Use the checkpoint at gold's peak; mend the reward or raise beta before the "
    "next run.",
)
TOO_LONG: Final = Cause(
    "too_long",
    "training went on after its best point",
    "Stop at the step of the peak: stopping is part of a setting.",
)
NORMALISATION: Final = Cause(
    "normalisation",
    "the scale of rewards or advantages grows, and with it every update; beta is not the reason",
    "Normalise the advantages (or scale the reward), then look again before touching beta.",
)
CLIPPING: Final = Cause(
    "clip_range",
    "the ratio's clip range allows too large updates",
    "Take a tighter clip range: a wider one permits larger updates.",
)
SAMPLING: Final = Cause(
    "sampling",
    "completions are drawn from another distribution than the one the log-probs are of: top-k, top-p, a minimum length, a "
    "repetition penalty, or a temperature on one side only",
    "Sample with the plain softmax at the temperature that both log-probs use, and switch off all filters.",
)
REFERENCE_OTHER: Final = Cause(
    "reference_is_another_model",
    "the reference is not the model that training started from: the base instead of the start adapter, or dropout is on",
    "Compare the two models' log-probs of one text before training.",
)
ENGINE: Final = Cause(
    "engines_differ",
    "generator and trainer compute log-probs with other kernels, number formats or stale weights",
    "Compare the log-probs of one batch token by token; make sure that weights are sent before each rollout.",
)
WRONG_ESTIMATOR: Final = Cause(
    "wrong_estimator",
    "the number is not what its name says: a signed log-ratio, or its sign is turned",
    "Look up in the trainer which estimator this metric is, or give the metric under its true name.",
)
KL_METRIC_WRONG: Final = Cause(
    "kl_metric_wrong",
    "the KL in the log is not the KL to the reference: a wrong sign, mask or unit, a reference that follows the policy, "
    "or the KL of one update",
    "Compute the KL of the last checkpoint to the reference on fresh samples by hand before believing any of the curves.",
)
NOT_LOGGED: Final = Cause(
    "not_logged",
    "the trainer was not told to compute the KL to the reference",
    "Switch it on: without it neither beta nor over-optimisation can be judged.",
)
UNIT_NOT_SAID: Final = Cause(
    "unit_not_said",
    "the log's name does not say whether the KL is a mean over tokens or a sum over each completion, and its size fits both",
    "Say --kl-unit token or --kl-unit sequence: look in the trainer's code whether it averages over tokens or sums over "
    "each completion.",
)
TEXT_LOGGED: Final = Cause(
    "text_logged",
    "the column holds words, or numbers in a form that no program reads",
    "Look at the column in the log, and export it as plain numbers.",
)
UPDATE_KL_ONLY: Final = Cause(
    "update_kl_only",
    "only the KL of one update is logged, which says nothing of the distance to the reference",
    "Log the KL to the reference; don't hold an update's KL against a target for it.",
)
NUMERICS: Final = Cause(
    "numerics",
    "an overflow: exp of a large log-ratio, a logarithm of 0 at forbidden tokens, or half precision",
    "Find the first step above and look at its batch: log-softmax in float32, masked slots set to 0 before exp, no "
    "filtered logits.",
)
LENGTH_PAID: Final = Cause(
    "length_paid",
    "the reward pays length, or the loss divides it out of the penalty",
    "Correlate reward and length over completions; mend the reward if it pays words.",
)
SHORT_PAID: Final = Cause(
    "shortness_paid",
    "the reward or a penalty summed over tokens pays short answers",
    "Read a few: if they are cut short to save KL, lower beta; if the reward likes them, mend the reward.",
)
FORMAT_CHANGED: Final = Cause(
    "format_changed",
    "the policy learned another form of answer, which may be right",
    "Read ten completions of early and late steps side by side.",
)
LENGTH_LIMIT: Final = Cause(
    "length_limit",
    "the limit on tokens is too low, or the stop token is never learned",
    "Check that the stop token is among the trained tokens; then raise the limit.",
)
OUTLIER_TOKENS: Final = Cause(
    "outlier_tokens",
    "some positions (often the first or the last, or the stop token) are far off while the mean looks fine",
    "List the tokens with the largest KL with their text.",
)
RARE_TOKENS: Final = Cause(
    "rare_tokens",
    "the policy writes what its reference hardly ever would, such as another language",
    "Read the completions that hold them.",
)
ENTROPY_BONUS: Final = Cause(
    "no_exploration",
    "nothing holds the entropy up",
    "Raise beta or the temperature before adding an entropy bonus.",
)
REWARD_NOISE: Final = Cause(
    "reward_unstable",
    "the reward itself swings: its judge, its scale, or the mix of prompts changed",
    "Score the same completions twice; go back to the last checkpoint before the swings.",
)
HORIZON_TOO_LONG: Final = Cause(
    "horizon_too_long",
    "the horizon is so long that beta moves by less than 10 % over the run",
    "Shorten the horizon: beta changes by at most 0.2 x sequences per step / horizon each step.",
)
KL_ELSEWHERE: Final = Cause(
    "controller_unused",
    "the controller steers a coefficient that is not in use, such as verl's kl_ctrl with a KL in the loss",
    "Check where the KL is paid; verl's controller acts only on a KL in the reward.",
)
CONTROLLER_BOUND_HIGH: Final = Cause(
    "upper_bound",
    "beta is as large as it may be and the KL is still above its target",
    "Check that target and KL are in one unit, lower the learning rate, then raise the bound.",
)
CONTROLLER_BOUND_LOW: Final = Cause(
    "lower_bound",
    "beta is as small as it may be and the KL is still below its target",
    "The target asks for more than this reward pays for: lower the target or the bound.",
)
CRITIC_LATE: Final = Cause(
    "critic_untrained",
    "the critic was not warmed up, or learns too slowly for its returns",
    "Train the critic alone for some steps, or take a group baseline instead.",
)
ONE_BATCH: Final = Cause(
    "one_batch",
    "one batch (its prompts, its rewards) or one step that was too large threw the policy off, and it came back",
    "Look at the batch, the gradient norm and the learning rate of the step at which the KL rose, and clip the gradient; "
    "leave beta as it is.",
)
AGAINST_REWARD: Final = Cause(
    "against_reward",
    "the updates go against the reward: its sign or that of the advantages is turned, or rewards and completions are "
    "paired wrongly",
    "Take one group and check that the completion with the highest reward gets the highest advantage and gains "
    "log-probability over the step.",
)
DETERMINISTIC: Final = Cause(
    "deterministic",
    "the policy is all but deterministic: trained too far before, or drawn at too low a temperature, so the completions "
    "of a group hardly differ",
    "Draw eight completions of one prompt: if they are alike, raise the temperature or start from an earlier checkpoint.",
)
STALE: Final = Cause(
    "stale_samples",
    "the completions were drawn by a policy that is many updates old",
    "Take fewer updates per rollout, or rollouts that are less far behind.",
)
NO_GOLD: Final = Cause(
    "no_gold",
    "the log holds nothing but the reward that is trained on",
    "Judge a few checkpoints on held-out prompts by something that training never saw.",
)
