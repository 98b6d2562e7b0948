"""Probes of a loaded model and trainer: each measures one thing that must hold before any number can be trusted."""
