"""The wire: the IDL, the types generated from it, framing and codec. Bytes in, values out; no sockets, no clock, no service.

`framing` cuts a stream into frames, `codec` turns a frame into a call or a reply and back, `limits` holds the bounds, `queue_settings` the
names of a queue's settings. Both ends use the same functions: a server decodes calls and encodes replies, a client the other way round.
"""
