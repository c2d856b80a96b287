"""Hostile callers against a real server: each bound is measured as resident memory or as time on the event loop."""
