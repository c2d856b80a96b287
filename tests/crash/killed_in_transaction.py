"""A server that is killed within the first transaction of an ack that stays open for a claim.
`python -m tests.crash.killed_in_transaction serve ...`.

`PINLATER_TEST_KILLED`: `waiting` before the claim has joined it, `joined` after that. Everything else is the real command.
"""

from __future__ import annotations

import os
import signal

from pinlater.server.storage.sqlite import shard
from pinlater.server.storage.sqlite.writer import Writer, _Carried

KILLED = "PINLATER_TEST_KILLED"


class KilledWriter(Writer):
    """The writer of a server that is killed."""

    _calls: int | None = None  # of a transaction that stayed open, before others joined it

    def _linger(self, carried: _Carried, before: int, turns: int) -> None:
        if not turns:
            self._calls = len(carried)
            if os.environ[KILLED] == "waiting":
                os.kill(os.getpid(), signal.SIGKILL)
        super()._linger(carried, before, turns)

    def _end_transaction(self, carried: _Carried, before: int) -> None:
        calls, self._calls = self._calls, None
        if calls is not None and len(carried) > calls:
            os.kill(os.getpid(), signal.SIGKILL)
        super()._end_transaction(carried, before)


if __name__ == "__main__":
    shard.Writer = KilledWriter  # type: ignore[attr-defined]
    from pinlater.cli.main import main

    main()
