"""Tells the server how attempts ended: buffers, delivers and retries reports."""
