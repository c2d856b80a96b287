"""Renews the claims of jobs in hand from a thread of its own, and notices a blocked event loop."""
