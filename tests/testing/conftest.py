"""A service for each test, as the plug-in gives one to users."""

from __future__ import annotations

from pinlater.testing.plugin import pinlater_clock, pinlater_server, pinlater_service

__all__ = ["pinlater_clock", "pinlater_server", "pinlater_service"]
