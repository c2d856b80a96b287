"""Calls between servers: what belongs to a slice that another server owns goes to that server, joined."""
