"""Spark over history: sources, sink, fold, tables and jobs. Imports of ours: `history.schema` and `errors` only."""
