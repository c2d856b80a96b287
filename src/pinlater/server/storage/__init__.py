"""Stores. `interface` defines what a shard must do; each folder implements it for one kind of database."""
