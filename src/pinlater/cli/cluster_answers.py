"""Combines what several servers report about their cluster, and finds contradictions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import add
from typing import Any, NamedTuple

from pinlater.client.values import ClusterServer, ClusterShard, ClusterStatus, FrontProcess, ServerFacts, ShardMemory
from pinlater.domain.queue import PartitionNumber
from pinlater.domain.servers import addresses_by_name
from pinlater.domain.slices import slice_of


class ServerAnswer(NamedTuple):
    """The answer of the server at `asked`, an address of --server. `status` is None if it did not answer; then `error` says why."""

    asked: str
    status: ClusterStatus | None = None
    error: str = ""


class Server(NamedTuple):
    """One server, as all servers that answered know it. `owns`: slices by shard. Items: according to the servers that answered.

    `facts`: as the server itself reports them, otherwise as another one received them. `heard`: whether all others hear it and can send
    calls to it, or None if no other server answered. `heard_ms`: from the server that heard it longest ago. `moves`: how often it saw a
    slice get another owner since its start, or None if it did not answer.
    """

    address: str
    name: str
    asked: Sequence[str]
    owns: Mapping[str, int]
    slots: Mapping[str, int]
    heard: bool | None
    heard_ms: int | None
    items_sent: int
    items_taken: int
    facts: ServerFacts
    moves: int | None


def servers_of(answers: Sequence[ServerAnswer]) -> list[Server]:
    """Returns all servers, by address."""
    known = [server for status in _distinct(answers) for server in status.servers]
    addresses = addresses_by_name((server.name, server.address) for server in known)
    views: dict[str, list[ClusterServer]] = {}
    for server in sorted(known, key=lambda server: not server.address):
        views.setdefault(server.address or addresses.get(server.name, server.name), []).append(server)
    owners = {shard.name: Counter(shard.owners) for shard in shards_of(answers)}
    return [_server(views[key], owners, answers) for key in sorted(views, key=_by_numbers)]


def _by_numbers(address: str) -> list[Any]:
    """Sorts 10.0.0.2 before 10.0.0.10."""
    return [int(part) if index % 2 else part for index, part in enumerate(re.split(r"(\d+)", address))]


def _server(
    views: Sequence[ClusterServer], owners: Mapping[str, Counter[str]], answers: Sequence[ServerAnswer]
) -> Server:
    address = views[0].address
    own = [each for each in answers if each.status is not None and each.status.address == address]
    others = [view for view in views if not view.answers and view.address == address]
    return Server(
        address=address,
        name=next((view.name for view in views if view.name), ""),
        asked=[each.asked for each in own],
        owns={shard: owned[address] for shard, owned in owners.items() if address and owned[address]},
        slots={shard: slot for view in views for shard, slot in view.slots.items()},
        heard=all(map(_reached, others)) if others else None,
        heard_ms=max((view.heard_ms for view in others if view.heard_ms is not None), default=None),
        items_sent=sum(view.items_sent for view in others),
        items_taken=sum(view.items_taken for view in others),
        facts=max(views, key=lambda view: (view.answers, view.facts.version != "")).facts,
        moves=next((status.moves for status in _distinct(own)), None),
    )


def shards_of(answers: Sequence[ServerAnswer]) -> list[ClusterShard]:
    """Returns all shards, with the newest owners that a server knows. Reachable: by all servers that answered."""
    views: dict[str, list[ClusterShard]] = {}
    for status in _distinct(answers):
        for shard in status.shards:
            views.setdefault(shard.name, []).append(shard)
    return [
        max(found, key=lambda shard: shard.version)._replace(in_reach=all(shard.in_reach for shard in found))
        for found in views.values()
    ]


def memories_of(answers: Sequence[ServerAnswer]) -> dict[str, ShardMemory]:
    """Returns, by shard, the due jobs that all answering servers together remember. Leaves out shards whose stores remember none."""
    found: dict[str, ShardMemory] = {}
    for status in _distinct(answers):
        for shard in status.shards:
            memory = None if shard.details is None else shard.details.memory
            if memory is not None:
                before = found.get(shard.name, ShardMemory())
                found[shard.name] = ShardMemory(*map(add, before, memory))
    return found


def owners_of_queue(queue: str, answers: Sequence[ServerAnswer]) -> dict[str, str]:
    """The owner of the queue by shard; '' where it has none."""
    return {shard.name: shard.owners[slice_of(queue)] for shard in shards_of(answers)}


def partitions_of(answers: Sequence[ServerAnswer]) -> dict[str, PartitionNumber]:
    """The queues with several partitions, by name; if two answers differ, the number that was chosen last."""
    found: dict[str, PartitionNumber] = {}
    for status in _distinct(answers):
        for queue, number in status.partitions.items():
            found[queue] = max(number, found.get(queue, number), key=lambda each: each.since_ms or 0)
    return dict(sorted(found.items()))


def problems(answers: Sequence[ServerAnswer]) -> Iterator[str]:
    """A sentence for each contradiction, and for each server that does not answer, has trouble with its coordinator, or can't get calls
    from another one."""
    for answer in answers:
        if answer.status is None:
            yield f"{answer.asked} does not answer: {answer.error}"
    for answer in answers:
        if answer.status is not None and answer.status.coordinator_trouble:
            yield f"{answer.asked} changes no owners: {answer.status.coordinator_trouble}"
    for shard in shards_of(answers):
        yield from _disagreement(shard.name, answers)
    for answer in answers:
        for server in () if answer.status is None else answer.status.servers:
            if server.address and not server.answers and not _reached(server):
                yield f"{answer.asked} can't send calls to {server.address}"


def _disagreement(name: str, answers: Sequence[ServerAnswer]) -> Iterator[str]:
    known: dict[tuple[str, ...], str] = {}  # a server for each version of the owners
    for answer in answers:
        if answer.status is None:
            continue
        shard = next((shard for shard in answer.status.shards if shard.name == name), None)
        if shard is not None:
            known.setdefault(tuple(shard.owners), f"{answer.asked} knows version {shard.version}")
        elif not answer.status.incomplete:
            yield f"{answer.asked} does not use shard {name}"
    if len(known) > 1:
        yield f"the servers do not agree on the owners of shard {name}: {', '.join(known.values())}"


def fronts_of(answers: Sequence[ServerAnswer]) -> list[tuple[str, FrontProcess]]:
    """The front processes of all servers that answered, each with the address of its server."""
    return [(status.address, front) for status in _distinct(answers) for front in status.front_processes]


def _reached(server: ClusterServer) -> bool:
    return server.heard and server.usable


def _distinct(answers: Sequence[ServerAnswer]) -> list[ClusterStatus]:
    """The distinct answers of the servers: two addresses may belong to one."""
    return list({answer.status.address: answer.status for answer in answers if answer.status is not None}.values())


def as_json(answers: Sequence[ServerAnswer], queue: str | None) -> dict[str, Any]:
    """Returns all of it, with the answer of each server."""
    found = list(problems(answers))
    return {
        "agree": not found,
        "problems": found,
        "servers": _plain(servers_of(answers)),
        "shards": _plain(shards_of(answers)),
        "partitions": _plain(partitions_of(answers)),
        "queue": None
        if queue is None
        else {"queue": queue, "slice": slice_of(queue), "owners": owners_of_queue(queue, answers)},
        "answers": [_answer_json(answer) for answer in answers],
    }


def _answer_json(answer: ServerAnswer) -> dict[str, Any]:
    status = answer.status
    if status is None:
        return {"asked": answer.asked, "error": answer.error}
    return {"asked": answer.asked, "error": None, **_plain(status)}


def _plain(value: Any) -> Any:
    """Named tuples as objects, at any depth."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
