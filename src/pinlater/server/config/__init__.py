"""Finds, layers and checks the settings, and watches the files that are read again while the server runs."""
