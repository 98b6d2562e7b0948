"""What was measured: the registry of names, the JSONL record and its mirrors."""
