"""Orders come in and are answered at once; the worker ships them."""

from __future__ import annotations

import json

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import path

from shop import outbox, tasks
from shop.models import Order


def orders(request: HttpRequest) -> JsonResponse:
    """Order and job are stored together or not at all, whether the job service is there or not."""
    item = json.loads(request.body)["item"]
    with transaction.atomic():
        order = Order.objects.create(item=item)
        outbox.put(tasks.ship.queue, tasks.ship.job(order.id))
        if item == "unicorn":
            raise ValueError("out of stock")  # takes the order back, and the job with it
    return JsonResponse({"order": order.id}, status=202)


def order_state(request: HttpRequest, number: int) -> JsonResponse:
    """How far it is."""
    return JsonResponse({"state": get_object_or_404(Order, id=number).state})


def health(request: HttpRequest) -> JsonResponse:
    """For probes: whether Django answers. Orders need no job service to be there."""
    return JsonResponse({"state": "up"})


urlpatterns = [path("orders", orders), path("orders/<int:number>", order_state), path("health", health)]
