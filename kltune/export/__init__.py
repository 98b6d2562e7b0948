"""A study's answer in, the same setting in the keys and units of other trainers out."""
