"""Decides which dequeue gets which job, and when: joined claims, waiting dequeues and what wakes them, rate limits."""
