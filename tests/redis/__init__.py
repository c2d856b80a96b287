"""The Redis store beyond the contract: real servers of ours on real databases."""
