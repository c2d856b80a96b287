"""Stores. `interface` says what one shard must do; each folder beside it does it on one kind of database."""
