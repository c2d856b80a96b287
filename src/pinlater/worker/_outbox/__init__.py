"""All that a worker tells the servers of its claims: heartbeats, from a thread of their own, checkpoints, acks, and jobs given back."""
