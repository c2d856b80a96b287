"""One server: `run.py` is its process, `app.py` creates, starts and stops its parts, `core.py` is what tests need of them."""
