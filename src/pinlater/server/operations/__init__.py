"""The operations of callers, for any transport: first the checks, then the store, then the waiting dequeues."""
