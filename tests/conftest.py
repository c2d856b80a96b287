"""What holds for every test: Ctrl-C reaches whatever a test starts, and no test's logging set-up reaches the next."""

from __future__ import annotations

import logging
import signal
from collections.abc import Generator

import pytest

pytest_plugins = ["tests.databases.fixtures", "tests.databases.redis_users"]


def pytest_configure() -> None:
    """A run started in the background inherits an ignored SIGINT, and so would every process that a test starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
