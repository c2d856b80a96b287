"""Several processes on a store that one process must have for itself: that process opens it, the others are fronts of it.

A front process listens for clients, decodes, checks access and encodes, as any server. It has no store: each operation that a handler
calls is a call to the store process (`store_connection`), which carries it out with its own parts (`front_listener`). So queues, waiting
dequeues, limits and settings are in one process, as in a server alone.
"""
