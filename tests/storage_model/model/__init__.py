"""The model of a shard: each rule written as plainly as it can be, a second time, so that random tests can compare the stores with it.

It holds what the machines ask: queues, jobs, their keys and counters. The contract tests alone cover the bounds of bytes, failure groups,
copies of deleted jobs, audit and samples. It must never contain an optimisation that hides a rule, nor the code that decides for stores.
"""
