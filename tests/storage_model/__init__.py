"""Every store against the model: the same operations on both, drawn by Hypothesis, and every answer compared."""
