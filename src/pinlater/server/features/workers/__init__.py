"""The workers that this server heard lately."""
