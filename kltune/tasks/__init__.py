"""What is learned: prompts, proxy and gold. Torch-free."""
