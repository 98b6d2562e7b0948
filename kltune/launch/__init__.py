"""One process: one device, one bank, one loop."""
