"""A shard as the settings and files have it."""

from __future__ import annotations

from typing import NamedTuple

from pinlater.server.storage.mysql.settings import Endpoint
from pinlater.server.storage.redis.settings import RedisEndpoint


class ShardPlace(NamedTuple):
    """One shard: its name, the entry of the shard file it comes from (empty for a URL's), and where it is."""

    name: str
    key: str
    endpoint: Endpoint | RedisEndpoint
    takes_enqueues: bool = True
