"""Job descriptors: `<queue>:s<shard>:p<priority>:<local id>`, for example `emails:s1d2:p1:73`."""

from __future__ import annotations

import re
from typing import NamedTuple

from pinlater.domain.errors import DescriptorInvalid

I64_MAX = 2**63 - 1
_PATTERN = re.compile(r"([A-Za-z0-9_]+):s([A-Za-z0-9_.-]+):p([0-9]{1,3}):([0-9]{1,19})", re.ASCII)


class JobDescriptor(NamedTuple):
    """The four parts; all must match the job they name. `priority` is the one at enqueue, or a later one that an operator set."""

    queue: str
    shard: str
    priority: int
    local_id: int

    def __str__(self) -> str:
        return f"{descriptor_prefix(self.queue, self.shard)}{self.priority}:{self.local_id}"


def descriptor_prefix(queue: str, shard: str) -> str:
    """The part of a descriptor before `<priority>:<local id>`: the same for all jobs of a queue on a shard."""
    return f"{queue}:s{shard}:p"


def shard_of(text: str) -> str:
    """The shard that `text` names, without a check of its other parts; '' if it names none."""
    parts = text.split(":", 2)
    return parts[1].removeprefix("s") if len(parts) > 1 else ""


def parse_descriptor(text: str) -> JobDescriptor:
    """The parts of `text`; raises `DescriptorInvalid` for anything that a server could not have made."""
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise DescriptorInvalid.of(text)
    queue, shard, priority, local_id = match.groups()
    number = int(local_id)
    if number > I64_MAX:
        raise DescriptorInvalid.of(text)
    return tuple.__new__(JobDescriptor, (queue, shard, int(priority), number))  # faster than calling the class
