"""The recommended settings on fresh seeds and on prompts that nothing has seen."""
