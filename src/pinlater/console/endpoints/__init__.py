"""A function for each endpoint, by subject: from a checked call to an answer."""
