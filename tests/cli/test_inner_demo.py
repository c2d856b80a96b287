"""The command of the demo's server, without a package that is installed here."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinlater.cli.commands.demo.server import DemoConsoleFailed, DemoServer
from tests.cli.test_without_extras import PROGRAM


async def test_without_its_extra_the_console_does_not_run_and_the_reason_says_what_to_install(tmp_path: Path) -> None:
    program = PROGRAM.format(hidden={"starlette"}, arguments=()).replace("*()", "*sys.argv[1:]")
    demo = DemoServer(tmp_path / "demo.db", console=True)
    demo._command[1:3] = ["-c", program]
    async with demo:
        with pytest.raises(DemoConsoleFailed, match=r"extra is missing \(pip install"):
            await demo.console_address()
