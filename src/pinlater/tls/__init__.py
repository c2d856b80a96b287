"""TLS for connections: what client, servers and console share. Knows nothing of PinLater's messages."""
