"""What holds for every test: Ctrl-C reaches whatever a test starts, neither a test's environment nor its logging set-up reaches the next,
and what a test leaves open fails that test."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from asyncio import selector_events
from collections.abc import Generator
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings

from tests import open_files

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
    open_files.allow_as_many_as_possible()
    _close_what_a_closed_server_has_accepted()


def _close_what_a_closed_server_has_accepted() -> None:
    """Python 3.11 keeps a connection open whose server is closed after the accept and before the transport."""
    transport: Any = selector_events._SelectorTransport  # type: ignore[attr-defined]
    init = transport.__init__

    def guarded(self: Any, loop: Any, sock: Any, protocol: Any, extra: Any = None, server: Any = None) -> None:
        if server is not None and not server.is_serving() and not server.sockets:
            self._sock = None  # what its end looks at
            sock.close()
            raise ConnectionAbortedError("the server was closed")
        init(self, loop, sock, protocol, extra, server)

    transport.__init__ = guarded


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """A connection that was left open is an error when its object is collected. That is now, so it is this test's error.

    What is still in use is set aside: it need not be looked through after each of the tests that follow.
    """
    result = yield
    refused: list[BaseException] = []
    hook = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: refused.append(unraisable.exc_value or unraisable.exc_type())
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook
    gc.freeze()
    if refused:
        raise BaseExceptionGroup("left open", refused)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Options of a command change the environment of its process, and here that is the tests' own."""
    with patch.dict(os.environ):
        return (yield)


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
