"""Records the scenarios anew: `python -m tests.wire.golden.record [NAME...]`.

Requests are written by Apache's own protocol from the compiler's classes, as the clients of users write them. The tests replay the recorded
bytes and need neither.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TMessageType
from thrift.transport.TTransport import TMemoryBuffer

from tests.compiled import PinLater as _service
from tests.compiled import ttypes as _ttypes
from tests.promises.wire import encode_arguments
from tests.wire.golden.client_side import VALUES, made_values, sent_requests
from tests.wire.golden.exchange import FRAMES, Scenario, ScenarioStep, write_scenario
from tests.wire.golden.replay import Player, player

# Generated code has no types.
PinLater: Any = _service
types: Any = _ttypes

Script = Callable[["ScenarioRecorder"], Awaitable[None]]
SCRIPTS: dict[str, tuple[str, Script]] = {}
"""What records each scenario, by its name: the kind of server, and the function."""


def scenario(server: str = "plain") -> Callable[[Script], Script]:
    """A script that is recorded in the file with its name."""

    def add(script: Script) -> Script:
        SCRIPTS[script.__name__] = (server, script)
        return script

    return add


def bare(cls: Any, **fields: Any) -> Any:
    """A struct whose other fields are not sent, not even with their defaults."""
    unset = {entry[2]: None for entry in cls.thrift_spec if entry is not None}
    return cls(**{**unset, **fields})


class ScenarioRecorder:
    """Makes requests for a script, and keeps them with their answers. `source`, `token`: of the calls that name no other."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self._seqid = 0
        self._asked: dict[str, str] = {}  # the method of the last request, by connection
        self.steps: list[ScenarioStep] = []
        self.source = "golden"
        self.token: str | None = None

    async def do(self, words: str) -> None:
        """Does something with the server."""
        await self._play(ScenarioStep("do", words))

    async def call(self, method: str, note: str = "", *, on: str = "", context: Any = None, **arguments: Any) -> Any:
        """Makes a call. Returns what the method returns, or its exception."""
        await self._ask("call", method, note, on, context, arguments)
        return await self.answer(on)

    async def send(self, method: str, note: str = "", *, on: str = "", context: Any = None, **arguments: Any) -> None:
        """Makes a call whose answer comes later."""
        await self._ask("send", method, note, on, context, arguments)

    async def message(self, data: bytes, note: str, *, on: str = "", answered: bool = True) -> None:
        """Sends bytes in a frame."""
        await self._play(ScenarioStep("call" if answered else "send", "bytes", on, note, data))
        if answered:
            self._asked[on] = ""
            await self.answer(on)

    async def raw(self, data: bytes, note: str, *, on: str = "") -> None:
        """Sends bytes, with what stands for a length."""
        await self._play(ScenarioStep("raw", "", on, note, data))
        self._asked[on] = ""

    async def answer(self, on: str = "") -> Any:
        """The next answer, as `call` returns it; None if it is Thrift's own exception."""
        frame = await self._play(ScenarioStep("answer", "", on))
        self.steps[-1] = ScenarioStep("answer", "", on, "", frame)
        method = self._asked[on]
        protocol = TBinaryProtocol(TMemoryBuffer(frame), strictRead=True)
        if not method or protocol.readMessageBegin()[1] == TMessageType.EXCEPTION:
            return None
        result = getattr(PinLater, f"{method}_result")()
        result.read(protocol)
        return getattr(result, "success", None) if result.e is None else result.e

    async def closed(self, on: str = "") -> None:
        """The server closes the connection."""
        rest = await self._play(ScenarioStep("closed", "", on))
        self.steps[-1] = ScenarioStep("closed", "", on, "", rest)

    def made(self, method: str, *, context: Any = None, seqid: int = 1, **arguments: Any) -> bytes:
        """The bytes of a call."""
        context = context or bare(types.RequestContext, source=self.source, authToken=self.token)
        return encode_arguments(method, getattr(PinLater, f"{method}_args")(context, **arguments), seqid)

    async def _ask(self, kind: str, method: str, note: str, on: str, context: Any, arguments: dict[str, Any]) -> None:
        self._seqid += 1
        data = self.made(method, context=context, seqid=self._seqid, **arguments)
        self._asked[on] = method
        await self._play(ScenarioStep(kind, method, on, note, data))

    async def _play(self, step: ScenarioStep) -> bytes:
        self.steps.append(step)
        return await self._player.play(step)


async def recorded(name: str) -> Scenario:
    """Records one scenario."""
    server, script = SCRIPTS[name]
    async with player(server) as playing:
        recorder = ScenarioRecorder(playing)
        await script(recorder)
        await playing.finish()
        return Scenario(name, server, recorder.steps)


def main(names: list[str]) -> None:
    """Records the named scenarios, or all, and the client's side; files of scenarios that are no longer there go."""
    import tests.wire.golden.scripts  # noqa: F401 - they enter themselves

    FRAMES.mkdir(exist_ok=True)
    for path in FRAMES.glob("*.txt"):
        if path.stem not in SCRIPTS:
            path.unlink()
    for name in names or SCRIPTS:
        write_scenario(asyncio.run(recorded(name)))
    write_scenario(asyncio.run(sent_requests()))
    VALUES.write_text("".join(f"{line}\n" for line in asyncio.run(made_values())))


if __name__ == "__main__":
    # The scripts import this module by its name, so that the one that runs is another.
    from tests.wire.golden import record

    record.main(sys.argv[1:])
