"""A dump of a file of every schema version that was ever released, and what is in it."""
