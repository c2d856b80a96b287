"""Several server processes on one port, as one server: `pinlater serve --processes N`.

The parent (`supervisor`) answers HTTP for all and keeps the children running; each child (`child`) is a whole server with a store and
listens on the shared Thrift port. Parent and child talk over a control channel (`control_channel`). No job ever passes through the
parent.
"""
