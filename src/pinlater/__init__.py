"""PinLater: a durable asynchronous job service."""

from pinlater.version import __version__

__all__ = ["__version__"]
