"""A record of changes: their callers, where these came from, and what became of the changes."""
