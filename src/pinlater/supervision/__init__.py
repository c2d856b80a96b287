"""Runs processes and keeps them running. Shared by the supervisors of server processes and of worker processes."""
