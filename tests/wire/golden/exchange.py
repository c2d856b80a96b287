"""The format of a scenario's file: what goes over a server's connections, in order, with the bytes of every frame.

The first line names the kind of server. Then each step begins in the first column:

    do NAME WORDS...                     something happens at the server: time passes, a shard fails
    call METHOD[ on CONNECTION]: NOTE    a request; its bytes follow, without the length of the frame
    send METHOD[ on CONNECTION]: NOTE    the same, and its answer comes later, if at all
    raw[ on CONNECTION]: NOTE            bytes as they are, with what stands for a length
    answer[ on CONNECTION]               the next answer; its bytes follow
    closed[ on CONNECTION]               the server has closed the connection; what it sent before follows

The lines of bytes are indented: what the bytes mean, a bar, and the bytes in hexadecimal digits. Only the digits count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.wire.golden.message import bytes_of_lines, lines, read_message

FRAMES = Path(__file__).parent / "frames"
_STEP = re.compile(r"(?P<kind>\w+)(?: (?P<name>\w+))??(?: on (?P<connection>\w+))?(?:: (?P<note>.*))?")
_HEX_BYTES_A_LINE = 48


@dataclass(frozen=True)
class ScenarioStep:
    """One step of a scenario. `line`: where it stands in its file."""

    kind: str
    name: str = ""  # of the method, or, of a `do`, all words behind it
    connection: str = ""
    note: str = ""
    data: bytes = b""
    line: int = 0

    @property
    def head(self) -> str:
        """Its first line."""
        if self.kind == "do":
            return f"do {self.name}"
        parts = [self.kind, self.name, f"on {self.connection}" if self.connection else ""]
        return " ".join(filter(None, parts)) + (f": {self.note}" if self.note else "")


@dataclass(frozen=True)
class Scenario:
    """A scenario as it was recorded."""

    name: str
    server: str
    steps: Sequence[ScenarioStep]


SENT = "sent_by_the_client"
"""The file that has requests of the client only."""


def scenario_names() -> list[str]:
    """The recorded scenarios."""
    return sorted(path.stem for path in FRAMES.glob("*.txt") if path.stem != SENT)


def read_scenario(name: str) -> Scenario:
    """Reads the file of a scenario."""
    first, *text = (FRAMES / f"{name}.txt").read_text().split("\n")
    heads = [index for index, line in enumerate(text) if line and not line.startswith(" ")]
    steps = [
        _step(text[start], text[start + 1 : end], start + 2)
        for start, end in zip(heads, [*heads[1:], len(text)], strict=True)
    ]
    return Scenario(name, first.removeprefix("server "), steps)


def _step(head: str, rest: list[str], number: int) -> ScenarioStep:
    if head.startswith("do "):
        return ScenarioStep("do", head.removeprefix("do "), line=number)
    found = _STEP.fullmatch(head)
    assert found is not None, f"line {number}: {head}"
    data = bytes_of_lines([line for line in rest if line])
    return ScenarioStep(
        found["kind"], found["name"] or "", found["connection"] or "", found["note"] or "", data, number
    )


def write_scenario(scenario: Scenario) -> None:
    """Writes the file of a scenario."""
    text = [f"server {scenario.server}"]
    for step in scenario.steps:
        text += [step.head, *_shown(step)]
    (FRAMES / f"{scenario.name}.txt").write_text("\n".join(text) + "\n")


def _shown(step: ScenarioStep) -> Iterator[str]:
    if step.kind in ("raw", "closed"):
        for start in range(0, len(step.data), _HEX_BYTES_A_LINE):
            piece = step.data[start : start + _HEX_BYTES_A_LINE]
            yield f"  {piece!r} | {piece.hex()}"
    elif step.data:
        yield from lines(read_message(step.data))
