"""A cluster in one process: production servers, clients and workers on a simulated clock, network and shared store.

One seed is one history: the seed decides every delay and every choice, and nothing else does. `pinlater bench simulate` runs the cluster
that an operator plans; `tests/simulation` runs thousands of small clusters with random faults.

The world:

- `loop`: virtual time, and an event loop for each process
- `network`: connections between the processes
- `store`: shards that several servers share
- `cluster`: the processes that are servers
- `client`, `worker`: the processes that are clients
- `effects`: the effects of faults, each with its beginning and its end
- `trace`, `history`: what clients saw, and which promises that breaks
- `isolation`: a run leaves nothing behind in the interpreter

The command:

- `scenario`, `fault_kinds`: the parameters of a simulation, and the kinds of faults
- `producing`, `working`: producers and workers of a scenario
- `measure`, `gaps`: waits, backlog and fail-over times
- `run`: a scenario from its beginning to its report

Faults make the wall clock of each server and the clock of each shard jump; monotonic clocks do not. The only tolerance that the checker
gives a claim is the largest difference between the clocks of servers, and a server that took a wrong time adds nothing to it. Production
code must take time and randomness from outside, and no behaviour may depend on the order of a set.

Not simulated: what a database does with a transaction (`make faults` tests that), threads and processes of a server or a worker, and the
CPU time of anything.
"""
