"""Views that store orders and answer at once; the worker ships the orders."""

from __future__ import annotations

import json

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import path

from shop import outbox, tasks
from shop.models import Order


def orders(request: HttpRequest) -> JsonResponse:
    """Stores order and job together or not at all, even if the job service is down."""
    item = json.loads(request.body)["item"]
    with transaction.atomic():
        order = Order.objects.create(item=item)
        outbox.put(tasks.ship.queue, tasks.ship.job(order.id))
        if item == "unicorn":
            raise ValueError("out of stock")  # rolls back the order and the job
    return JsonResponse({"order": order.id}, status=202)


def order_state(request: HttpRequest, number: int) -> JsonResponse:
    """The state of the work."""
    return JsonResponse({"state": get_object_or_404(Order, id=number).state})


def health(request: HttpRequest) -> JsonResponse:
    """For health checks: Django answers. Orders need no running job service."""
    return JsonResponse({"state": "up"})


urlpatterns = [path("orders", orders), path("orders/<int:number>", order_state), path("health", health)]
