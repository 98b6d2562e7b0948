"""What a tracker does instead of its work: types only, so that what waits for one need not import MLflow."""

from __future__ import annotations


class TrackerOutage(Exception):
    """The tracker was not reached, or failed; what was sent may or may not have arrived."""


class TrackerRefusal(Exception):
    """The tracker answered that it will not take this."""


class TrackerLoss(TrackerRefusal):
    """The tracker no longer has what it had: a run that is gone, a database that is damaged."""
