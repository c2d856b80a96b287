"""Code for both SQLite and MySQL: jobs (load, decide, write), queues, bulk operations, sweeps, garbage. `dialect.py` is their interface."""
