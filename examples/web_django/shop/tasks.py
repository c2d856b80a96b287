"""The tasks of the shop, and the worker that runs them: `pinlater worker shop.tasks:worker`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import django
from django.apps import apps

# The worker process must set Django up itself.
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
if not apps.ready:
    django.setup()

from django.db import close_old_connections

from pinlater import Client, Worker
from pinlater.worker import exponential
from shop import outbox
from shop.models import Order

P = ParamSpec("P")
R = TypeVar("R")

worker = Worker(retry=exponential(1, max=600))
client = Client()


def with_database(function: Callable[P, R]) -> Callable[P, R]:
    """Closes stale database connections around each job, as Django does around each request."""

    @functools.wraps(function)
    def around(*args: P.args, **kwargs: P.kwargs) -> R:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return around


@worker.task("orders", attempts=8, time_limit=60)
@with_database
def ship(order_id: int) -> None:
    """A plain function, in a thread, which may use models. It is safe to repeat: it ships an order once."""
    changed = Order.objects.filter(id=order_id, state="ordered").update(state="shipped")
    print("shipped:" if changed else "was shipped already:", order_id, flush=True)


@worker.cron("* * * * * *", queue="outbox")
@worker.task("outbox", attempts=1, time_limit=60, log_level="debug")
@with_database
def relay_outbox() -> None:
    """Runs every second, on one of the workers."""
    while outbox.relay(client):
        pass
