"""Stores. `interface` says what one shard must do; each folder implements it for one kind of database."""
