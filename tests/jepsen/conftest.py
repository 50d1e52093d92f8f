"""Ten rounds on a cluster take minutes and all of the machine: `make test-cluster` plays them."""

import os

collect_ignore = [] if os.environ.get("CLUSTER") else ["test_cluster_rounds.py"]
