"""Runs one attempt of a job: on the event loop, in a thread, or in a child process."""
