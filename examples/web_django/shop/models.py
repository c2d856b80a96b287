"""An order, and the jobs that wait for its transaction."""

from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=100)
    state = models.CharField(max_length=20, default="ordered")


class OutboxEntry(models.Model):
    """A job to enqueue after its transaction has committed. Its id is its unique key: a database never uses one twice."""

    queue = models.CharField(max_length=64)
    job = models.TextField()
