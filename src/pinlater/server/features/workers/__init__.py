"""The workers that this server recently heard from."""
