"""The errors of a test run, in addition to the exceptions of tasks."""

from __future__ import annotations


class JobFailed(Exception):
    """A job failed without an exception at hand: its time was over, or it ran in a process. The text holds what is known."""


class RealServerReached(Exception):
    """A test was about to connect to a server that is not its own. Raised by the pytest plugin."""


class NeverIdle(Exception):
    """The bound of jobs was run and still one is due; most likely one that enqueues itself again."""
