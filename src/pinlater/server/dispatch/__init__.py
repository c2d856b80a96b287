"""Decides which dequeue gets which job, and when: joined claims, waiting dequeues and their wake-ups, rate limits."""
