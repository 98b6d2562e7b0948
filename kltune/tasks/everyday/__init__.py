"""Everyday requests for a small chat model, judged by tone, length, repetition and ending."""
