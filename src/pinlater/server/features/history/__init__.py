"""The history of queues: what happened in them, minute by minute, for charts."""
