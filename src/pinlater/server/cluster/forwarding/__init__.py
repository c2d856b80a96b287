"""Calls between servers: a server sends the calls for a slice to its owner, many of them in one message."""
