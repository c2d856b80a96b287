"""What comes on a connection after its goodbye takes no memory of the TLS library, which nothing outside of the layer shows."""

from __future__ import annotations

from typing import Any, cast

from tests.tls.test_protocol import LinkedSides, Run, loops, run, until

__all__ = ["run"]  # a fixture


@loops
def test_what_comes_after_the_goodbye_is_not_kept(run: Run, new_loop: Any) -> None:
    async def scenario(pair: LinkedSides) -> None:
        pair.keep_open = True
        here = await pair.connect(keep_open=True)
        here.transport.write_eof()
        await until(lambda: "eof" in pair.there.told)
        there = cast("Any", pair.there.transport)
        for _ in range(100):
            there.data_received(bytes(65_536))
        assert there._incoming.pending == 0

    run(new_loop, scenario)
