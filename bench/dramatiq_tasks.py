"""The peer's application: Dramatiq with an actor that does nothing. `REDIS_URL` says where its Redis is.

None of its middleware, which is where its retries and time limits are: that is as fast as it gets.
"""

from __future__ import annotations

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.benchmark_run import QUEUE

dramatiq.set_broker(RedisBroker(url=os.environ["REDIS_URL"], middleware=[]))


@dramatiq.actor(queue_name=QUEUE)
def noop(body: str) -> None:
    """The same handler as our worker's."""
