"""The audit: who changed what, from where, and what became of it."""
