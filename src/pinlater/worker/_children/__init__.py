"""Child processes that run the functions of `process=True` tasks."""
