"""The server: everything that runs the service."""
