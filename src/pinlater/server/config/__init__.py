"""Finds, layers and checks the settings, and watches the files that are reread while the server runs."""
