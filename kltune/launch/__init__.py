"""One search: one device, one bank (of one process or several), one loop."""
