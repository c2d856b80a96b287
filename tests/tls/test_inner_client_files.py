"""Files of a client that change: they are read again, and parsed only if they have changed, which no connection shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinlater.client import AsyncClient, Tls
from pinlater.client._tls import tls_source
from pinlater.domain.clock import ManualClock
from tests.tls.certificates import Authority


def test_files_that_change_are_read_again(
    authority: Authority, other_authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, file = ManualClock(), tmp_path / "authorities.pem"
    file.write_bytes(authority.file.read_bytes())
    source = tls_source(Tls(ca_file=file), clock.monotonic)
    assert source is not None
    address = AsyncClient("localhost").servers[0]
    first = source.side(address).context
    file.write_text("junk")
    assert source.side(address).context is first
    for _ in range(3):
        clock.advance(seconds=2)
        assert source.side(address).context is first
    assert caplog.text.count("the last good files stay") == 1
    file.write_bytes(other_authority.file.read_bytes() + authority.file.read_bytes())
    clock.advance(seconds=2)
    second = source.side(address).context
    assert second is not first
    assert len(second.get_ca_certs()) == 2
    clock.advance(seconds=2)
    assert source.side(address).context is second
