"""A shop: orders are stored, and shipped by a worker."""
