"""The link between two processes: one side asks, the other answers, many calls at a time over one connection.

Calls have numbers, and answers come in any order. All messages of one side in a turn of the event loop are sent in one frame. The side that
asks knows about each call whether it was sent, and sends nothing twice. The side that answers keeps its answers while the other one does
not read them, and gives back claims in answers that are lost. Front processes (`server.front`) and servers of the same shards
(`server.cluster.forwarding`) have their own calls and messages.
"""
