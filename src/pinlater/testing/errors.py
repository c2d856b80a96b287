"""The errors of a test run, in addition to the exceptions of tasks."""

from __future__ import annotations


class JobFailed(Exception):
    """A job failed without an exception in this process: its time was over, or it ran in another process. The text contains what is
    known."""


class RealServerReached(Exception):
    """A test was about to connect to a server that does not belong to the test run. Raised by the pytest plugin."""


class NeverIdle(Exception):
    """The maximum number of jobs was run and another one is still due; most likely one that enqueues itself again."""
