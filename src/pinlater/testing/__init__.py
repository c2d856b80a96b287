"""For tests of code that uses PinLater."""

from pinlater.testing.real_server import RealServer, ServerDidNotStart

__all__ = ["RealServer", "ServerDidNotStart"]
