"""The operations of callers, for any transport: checks first, then the store, then the waiting dequeues."""
