"""Pure values and rules of the job service. Standard library only; no I/O, no clock but the one handed in."""
