"""The API of a broker that keeps nothing on disk: what needs no past works, what needs one says so."""

from collections.abc import Callable

from broker_process import BrokerProcess
from http_api import LISTEN, Api


def test_without_a_disk_only_the_past_is_missing(start_broker: Callable[..., BrokerProcess]) -> None:
    with Api(start_broker(listen=LISTEN, retainer__storage_type="ram")) as api:
        api.set("a/1", "x")
        assert api.topics() == ["a/1"]
        assert api.ok("GET", "/api/v1/overview")["has_history"] is False
        operation = api.ok("DELETE", "/api/v1/retained/message", params={"topic": "a/1"})["operation"]
        assert api.ok("POST", f"/api/v1/operations/{operation}/undo")["restored"] == 1
        for path, query in (
            ("/api/v1/history", {"topic": "a/1"}),
            ("/api/v1/history/span", {}),
            ("/api/v1/retained/at", {"at_ms": "1"}),
            ("/api/v1/tree", {"at_ms": "1"}),
        ):
            answer = api.get(path, params=query)
            assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json"), path
        assert api.get("/metrics").status_code == 200
