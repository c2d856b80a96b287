"""Servers that share shards: which of them owns which queues, and calls from one to another."""
