"""Turns a call of a task into a job and sends it."""
