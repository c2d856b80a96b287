"""A cluster in one process: production servers and clients under a simulated clock, a simulated network and a simulated shared store.

One seed is one history: the seed decides the cluster's shape, its load, every delay and every fault, and nothing else does. A run costs
milliseconds, so thousands of them look for what a run on real databases meets once a month.

- `loop`: virtual time, and an event loop for each process
- `network`: connections between the processes
- `store`: shards that several servers share
- `cluster`: the processes that are servers, and what befalls them
- `workload`: the processes that are clients
- `faults`: what goes wrong, and when
- `run`: a seed from its beginning to its verdict

It lives in the tests because the history checker, which judges the runs, does. Nothing in it needs pytest.
"""
