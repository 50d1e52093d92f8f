"""The demo behind `holdfast demo` and `make demo`: documentation that runs. Nothing in the product imports it."""
