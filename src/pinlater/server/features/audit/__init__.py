"""A record of changes: their callers, where these came from, and what happened to the changes."""
