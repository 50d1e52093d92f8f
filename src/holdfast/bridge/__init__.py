"""Bridges: links to other brokers, over which topics go out, come in, or both.

A bridge is a client of two brokers. Of this one through memory (`local`), with a session that outlives its connection:
what waits for the other side is that session's queue, on disk and within its limits. Of the other one over the network
(`remote`). `plan` says which topics go where, `memory` what both sides had last, `link` moves messages and makes the
retained sets agree, `bridges` starts, stops and changes links while the broker runs.
"""
