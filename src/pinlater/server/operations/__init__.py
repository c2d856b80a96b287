"""The operations as a caller knows them, whatever the transport: checks first, then the store, then the waiting dequeues."""
