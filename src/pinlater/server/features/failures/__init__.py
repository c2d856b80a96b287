"""Failed attempts in groups, and which of these are muted."""
