"""What SQLite and MySQL do alike: load jobs, decide, write rows; queues, bulk operations, sweeps, garbage. Each is a dialect."""
