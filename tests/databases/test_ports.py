"""Workers of a parallel run draw ports of their own."""

from __future__ import annotations

import pytest

from tests.databases.ports import own_ports


def test_no_two_workers_share_a_port() -> None:
    drawn = [port for number in range(64) for port in own_ports(f"gw{number}")]
    assert len(drawn) == len(set(drawn)) > 64 * 180
    assert set(drawn) <= set(own_ports(""))


def test_a_worker_that_would_share_ports_is_refused() -> None:
    with pytest.raises(RuntimeError, match="no ports are left for gw64: run at most 64 workers"):
        own_ports("gw64")
