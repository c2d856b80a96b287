"""Open files: tests with thousands of connections need more than a shell allows at first."""

from __future__ import annotations

import resource

import pytest

_WANTED = 20_000


def allow_as_many_as_possible() -> None:
    """Lets this process and those that it starts open as many as their user may, up to 20,000."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def need(count: int) -> None:
    """Skips the test where a process can't have that many open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        pytest.skip(f"a process of this user may open only {soft} files")
