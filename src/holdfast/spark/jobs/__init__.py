"""What the pipeline does, one job a file: read, transform, write, in that order. Nothing here prints."""
