"""Bulk runs: changes of many jobs that a server carries out by itself, and undoes."""
