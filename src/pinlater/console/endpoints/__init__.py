"""What each endpoint does: a function for each, from a checked call to an answer, by subject."""
