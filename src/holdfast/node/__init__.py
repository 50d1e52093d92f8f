"""A node of a cluster: where the broker and the log servers meet."""
