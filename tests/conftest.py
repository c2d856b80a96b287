"""What holds for every test: Ctrl-C reaches whatever a test starts, no test's logging set-up reaches the next, and a connection that
was left open says which test opened it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from asyncio import selector_events
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.databases.fixtures", "tests.databases.redis_users"]


def pytest_configure() -> None:
    """A run started in the background inherits an ignored SIGINT, and so would every process that a test starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # No console beside each server that a test starts. Its own tests want one.
    os.environ["PINLATER_CONSOLE"] = "false"
    # Otherwise pytest-asyncio makes an event loop to put back after the first test, and no code closes it.
    asyncio.set_event_loop(None)
    # How long an example takes says how busy the machine is.
    settings.register_profile("untimed", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]))
    settings.load_profile("untimed")
    _name_the_test_that_opens_a_connection()


def _name_the_test_that_opens_a_connection() -> None:
    """The warning about a connection that was left open comes at a collection, in any later test."""
    transport: Any = selector_events._SelectorTransport  # type: ignore[attr-defined]
    init, show = transport.__init__, transport.__repr__

    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        self._opened_in = os.environ.get("PYTEST_CURRENT_TEST", "no test")
        init(self, *args, **kwargs)

    transport.__init__ = remember
    transport.__repr__ = lambda self: f"{show(self)} opened in {self._opened_in}, for {self.get_protocol()!r}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Levels and handlers after a test are what they were before it. A hook, since Hypothesis refuses fixtures of a test's scope."""
    loggers = [logging.getLogger(), logging.getLogger("pinlater")]
    before = [(each.level, list(each.handlers), each.propagate) for each in loggers]
    try:
        return (yield)
    finally:
        for each, (level, handlers, propagate) in zip(loggers, before, strict=True):
            each.setLevel(level)
            each.propagate = propagate
            for handler in [handler for handler in each.handlers if handler not in handlers]:
                each.removeHandler(handler)
