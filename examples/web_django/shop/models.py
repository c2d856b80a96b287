"""An order, and the jobs that wait for its transaction."""

import uuid

from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=100)
    state = models.CharField(max_length=20, default="ordered")


class OutboxEntry(models.Model):
    """A job to enqueue after its transaction has committed. `key` is random: a restored database may give the same id twice."""

    key = models.UUIDField(default=uuid.uuid4, editable=False)
    queue = models.CharField(max_length=64)
    job = models.TextField()
