"""Who gets which job, when: joined claims, waiting dequeues and what wakes them, rate limits."""
