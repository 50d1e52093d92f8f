"""What `holdfast cluster status` says of the log servers."""

import pytest

from holdfast.cli.cluster import print_status


@pytest.mark.parametrize(
    ("leader", "lagging", "said"),
    [
        ("log-1", {}, "log servers: leader log-1"),
        ("", {}, "log servers: no leader known"),
        ("log-1", {"log-3": 27, "log-2": 0}, "log servers: leader log-1; behind or gone: log-2, log-3 by 27"),
    ],
)
def test_log_servers_that_are_behind_or_gone_are_named(
    leader: str, lagging: dict[str, int], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = {"leader": leader, "last": 5, "lagging": lagging}
    print_status({"name": "holdfast", "node": "a", "log": log, "nodes": []})
    assert capsys.readouterr().out.splitlines()[1] == said
