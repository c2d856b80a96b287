"""One server: `run.py` is its process, `app.py` creates, starts and stops its parts, `core.py` has those that tests need, too."""
