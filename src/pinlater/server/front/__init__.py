"""Several processes on a store that only one process can open: that process opens it, the others are its fronts.

A front process listens for clients, decodes, checks access and encodes, like any server. It has no store: each operation that a handler
calls is a call to the store process (`store_connection`), which executes it with its own parts (`front_listener`). So queues, waiting
dequeues, limits and settings are in one process, as in a single server.
"""
