"""Golden frames: recorded requests of every method, with the bytes that a whole server answers.

`frames/*.txt` are the scenarios, and `exchange.py` is their format. `servers.py` starts the servers, `replay.py` plays a scenario, and
`record.py` records what `scripts/` ask.
"""
