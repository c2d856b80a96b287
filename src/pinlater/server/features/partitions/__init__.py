"""The automatic number of partitions of a queue: it grows with the work of the queue, and shrinks again."""
