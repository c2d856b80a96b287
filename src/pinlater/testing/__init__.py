"""For tests of code that uses PinLater: a service inside the test's process, and the real server in one of its own."""

from pinlater.server.operations.settings import ServiceSettings
from pinlater.testing._seen import EnqueuedCall, Ran
from pinlater.testing.clock import TurnedClock
from pinlater.testing.errors import JobFailed, NeverIdle, RealServerReached
from pinlater.testing.in_process import InProcessService
from pinlater.testing.real_server import RealServer, ServerDidNotStart

__all__ = [
    "EnqueuedCall",
    "InProcessService",
    "JobFailed",
    "NeverIdle",
    "Ran",
    "RealServer",
    "RealServerReached",
    "ServerDidNotStart",
    "ServiceSettings",
    "TurnedClock",
]
