"""Every store against the memory store: the same operations on both, drawn by Hypothesis, and every answer compared."""
