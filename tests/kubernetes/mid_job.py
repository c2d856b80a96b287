"""A pool whose pod is told to go while its jobs run: one that ends within the grace, one that does not, and one that can't be stopped."""

from __future__ import annotations

from pathlib import Path

from pinlater.client import Client, Job
from pinlater.domain.job import JobState
from tests.house.containers import Image
from tests.kubernetes.cluster import eventually
from tests.kubernetes.helm import REPOSITORY, KubernetesObject
from tests.kubernetes.pods_here import PodsHere

IMAGE = Image.of((REPOSITORY / "deploy/Dockerfile").read_text()).environment
HERE = {"jobs-pinlater-server:": "127.0.0.1:"}
"""What stands for the names of services here."""
POOL = """
pools:
  - name: mail
    queues: [mail, images]
    image: shop
    command: [pinlater, worker, "shop:worker"]
    concurrency: 3
    graceSeconds: 2
console:
  enabled: false
"""
_TASKS = """
import asyncio
import time
from pathlib import Path

from pinlater import ClaimedJob, Worker

worker = Worker()


@worker.task("mail")
async def send(job: ClaimedJob) -> None:
    while job.body == b"long" or not Path("told").exists():
        await asyncio.sleep(0.01)


@worker.task("images")
def resize(job: ClaimedJob) -> None:
    while True:
        time.sleep(0.1)
"""


class JobsOfAPod:
    """Three jobs, each with one attempt, that run in the pod of the pool."""

    def __init__(self, folder: Path, pods: PodsHere, server: KubernetesObject, worker: KubernetesObject) -> None:
        self._folder = folder
        (folder / "shop.py").write_text(_TASKS)
        pods.start(server, IMAGE, HERE)
        pods.wait_until_ready(server)
        self._client = Client(pods.servers)
        for queue in ("mail", "images"):
            self._client.create_queue(queue)
        pods.start(worker, {}, HERE)
        pods.wait_until_ready(worker)
        short, long = (Job(body, attempts_allowed=1) for body in (b"short", b"long"))
        self._short, *self._others = (
            *self._client.enqueue("mail", [short, long]).descriptors,
            *self._client.enqueue("images", [Job(b"stuck", attempts_allowed=1)]).descriptors,
        )
        eventually(lambda: self._states() == [JobState.IN_PROGRESS] * 3)

    def let_short_one_end(self) -> None:
        """Call it when the pod has been told to go."""
        (self._folder / "told").touch()

    def check(self) -> None:
        """The pod is gone: the short job is done, and the others wait. A claim that timed out would have spent their only attempt."""
        assert self._states() == [JobState.SUCCEEDED, JobState.PENDING, JobState.PENDING]
        found = self._client.lookup(self._others)
        assert [each.attempts_remaining for each in found.values()] == [1, 1]
        self._client.close()

    def _states(self) -> list[JobState]:
        found = self._client.lookup([self._short, *self._others])
        return [each.state for each in found.values()]
