"""The calls of a simulated store: the commands of a shard and the other calls of a server's session, with their properties."""

from __future__ import annotations

from typing import Any, TypeAlias

from pinlater.server.storage.commands import (
    Announce,
    ClaimJobs,
    Command,
    FinishJobs,
    InsertJobs,
    ReadCommand,
    SaveSamples,
    TrimSamples,
    WriteCommand,
)


class OpenSession(WriteCommand[None]):
    """Leases a slot."""


class Ping(ReadCommand[None]):
    """Renews a lease."""


class TellTime(ReadCommand[None]):
    """Stores how far a server's time is ahead of the store's."""


class TakeSnapshot(ReadCommand[None]):
    """Asks for the data that sweeps need."""


class AskSize(ReadCommand[None]):
    """Asks how much space the store takes."""


class ReleaseTokens(WriteCommand[None]):
    """Gives back claims with an unknown outcome, as a part of `TimeOutClaims`."""


CallKind: TypeAlias = type[Command[Any]]
# Calls that have a connection of their own, as in MySQL's and Redis' stores; all others share one.
WRITERS: dict[CallKind, str] = {InsertJobs: "inserts", ClaimJobs: "claims", ReleaseTokens: "claims", FinishJobs: "ends"}
# They make changes of which the other servers need not know.
_UNTOLD = frozenset({SaveSamples, TrimSamples, OpenSession})


def only_looks(kind: CallKind) -> bool:
    """Returns whether a call may be treated as one that changes nothing."""
    return issubclass(kind, ReadCommand) or kind is Announce


def is_told(kind: CallKind) -> bool:
    """Returns whether a call makes a change that is reported to the other servers."""
    return not only_looks(kind) and kind not in _UNTOLD
