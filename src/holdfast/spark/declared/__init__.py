"""Tables that users declare: which topics, what their payloads are, which columns, and what is kept of them.

`declaration` reads a `pipeline.toml`, or the same from Python, and says all that is wrong with it. `decoders` and
`sparkplug` make columns of payloads, in Arrow and without Spark; `frames` runs them in executors; `tables` makes of
every declaration a table that the pipeline keeps like its own.
"""

from holdfast.spark.declared.declaration import Declaration, declare, read_declarations

__all__ = ["Declaration", "declare", "read_declarations"]
