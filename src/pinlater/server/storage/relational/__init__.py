"""What SQLite and MySQL do alike: load jobs, decide, write rows; bulk operations; sweeps. Each of the two is a dialect (`dialect.py`)."""
