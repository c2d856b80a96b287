"""The link between two processes: one side asks, the other answers, many calls at a time over one connection.

Calls have numbers, and answers come in any order. What one side says in a turn of the event loop goes out in one frame. The side that asks
knows of each call whether it was sent, and sends nothing twice. The side that answers keeps its answers while the other one does not take
them, and gives back what was claimed for answers that are lost. Front processes (`server.front`) and servers of the same shards
(`server.cluster.forwarding`) have their own calls and messages.
"""
