"""Tools for tests of code that uses PinLater: a service inside the test's process, and the real server in a process of its own."""

from pinlater.server.operations.job_settings import JobSettings
from pinlater.testing._seen import EnqueuedCall, Ran
from pinlater.testing.clock import TurnedClock
from pinlater.testing.errors import JobFailed, NeverIdle, RealServerReached
from pinlater.testing.in_process import InProcessService
from pinlater.testing.real_server import RealServer, ServerDidNotStart

__all__ = [
    "EnqueuedCall",
    "InProcessService",
    "JobFailed",
    "JobSettings",
    "NeverIdle",
    "Ran",
    "RealServer",
    "RealServerReached",
    "ServerDidNotStart",
    "TurnedClock",
]
