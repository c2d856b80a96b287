"""What only the SQLite store has: its plans, its lock, its schema's versions, its group commit, its failures."""
