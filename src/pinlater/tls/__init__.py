"""TLS for the connections of client, servers and console. Knows nothing of PinLater's messages."""
