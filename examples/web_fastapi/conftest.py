"""Loads the fixtures of `pinlater.testing`."""

pytest_plugins = ["pinlater.testing.plugin"]
