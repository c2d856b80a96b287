"""Pure values and rules of the job service. Standard library only; no I/O; the clock is a parameter."""
