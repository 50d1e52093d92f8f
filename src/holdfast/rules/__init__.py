"""Rules that more than one room follows, each written once. Nothing here imports anything of ours: the broker compiles
it, and a Spark driver reads it without loading a broker.
"""
