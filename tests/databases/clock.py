"""A wall clock of its own for a private server, which a test sets while the server runs. Timers and the monotonic clock stay right.

The library's build for threads it is: with the other one, two threads that look at the time at once may see the machine's.
"""

from __future__ import annotations

from pathlib import Path

from tests.databases.server_process import ServerMissing


class FakeClock:
    """Give `environment` to the server before it starts. Raises `ServerMissing` where libfaketime isn't there."""

    def __init__(self, file: Path) -> None:
        libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        if not libraries:
            raise ServerMissing("no libfaketime here (Debian package faketime; scripts/test-packages installs it)")
        self._file = file
        self.environment = {
            "LD_PRELOAD": str(libraries[0]),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        self.jump(0)

    def jump(self, seconds: int) -> None:
        """From now on the clock is off by so much. The file is replaced whole, so that no reader sees half of it."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self._file)
