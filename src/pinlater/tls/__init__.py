"""TLS for the connections of client, servers and console. It knows nothing about PinLater's messages."""
