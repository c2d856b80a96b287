"""Operations through a front process do what they do in a server alone: recorded frames and tests of the service, over a connection."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from pinlater.server.main.app import thrift_server
from pinlater.server.main.core import Core
from tests.front.conftest import FrontAndStore
from tests.service.test_enqueue import *  # noqa: F403 the tests are to be found here
from tests.service.test_job_queries import *  # noqa: F403
from tests.service.test_settings_in_force import *  # noqa: F403
from tests.wire.golden import servers
from tests.wire.golden.exchange import read_scenario, scenario_names
from tests.wire.golden.replay import replay


class FrontedServer:
    """A front of a store process, with its Thrift listener."""

    def __init__(self, core: Core, **more: Any) -> None:
        self._folder = TemporaryDirectory()
        self._pair = FrontAndStore(core, str(Path(self._folder.name) / "store"))
        self._pair.service.change_listeners += core.service.change_listeners
        parts = copy(core)
        parts.service = self._pair.service
        self._thrift = thrift_server(parts, **more)

    @property
    def port(self) -> int:
        return self._thrift.port

    async def start(self) -> None:
        await self._pair.open()
        await self._thrift.start()

    async def drain(self, grace_s: float) -> None:
        await self._thrift.drain(grace_s)
        await self._pair.store.stop()
        self._pair.fronts.close()
        self._folder.cleanup()


@pytest.mark.parametrize("name", scenario_names())
async def test_a_front_process_answers_recorded_requests_with_the_recorded_bytes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "thrift_server", FrontedServer)
    differences = await replay(read_scenario(name))
    assert not differences, "\n\n".join(["", *differences])
