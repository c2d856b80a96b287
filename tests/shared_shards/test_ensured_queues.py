"""`ensureQueue` on MySQL and on Redis, with two servers: what one deletes, the other one does not create again for a task."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinlater.client import Client, Job
from pinlater.client.errors import QueueNotFound
from pinlater.testing.real_server import RealServer
from tests.quick_hash import quick_hash
from tests.shared_shards.serving import place_of, work_off


@pytest.mark.parametrize("kind", ["mysql", "redis"])
def test_a_queue_is_created_for_a_task_but_not_after_its_deletion(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = place_of(kind, tmp_path, request)
    options = (*place.options, "--set", f"admin_password_hash={quick_hash('open sesame')}")
    with (
        RealServer(tmp_path, *options, store=place.store) as first,
        RealServer(tmp_path, *options, store=place.store) as second,
        Client(first.address) as here,
        Client(second.address) as there,
    ):
        here.ensure_queue("emails")
        there.ensure_queue("emails")
        there.enqueue("emails", [Job(b"x")])
        assert work_off(here, "emails") == {b"x"}
        here.delete_queue("emails", "open sesame")
        for client in (there, here):
            with pytest.raises(QueueNotFound):
                client.ensure_queue("emails")
        there.create_queue("emails")
        here.ensure_queue("emails")
