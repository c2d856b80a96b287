"""The benchmark: what the service reaches on this machine, each figure beside references measured in the same run.

`python -m bench` for the table, `python -m bench compare OLD NEW` for two runs of it. Not part of the package.
How it measures, and what the figures don't say: docs/contributing/benchmarks.md.
"""
