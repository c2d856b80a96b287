"""A record of changes: who made them, from where, and with what outcome."""
