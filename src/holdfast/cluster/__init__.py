"""Many nodes on one log: what a node needs of NATS.

The order of everything that must be kept is that of one JetStream stream (`stream`). Beside it nodes say that they
are alive (`presence`), pass on what nobody has to remember (`channel`) and hand their state to one that joins
(`transfer`). What the messages mean is not known here: to this room they are bytes.
"""
