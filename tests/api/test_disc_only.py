"""The API over a retained set that is on disk only: the same answers."""

from collections.abc import Callable

from broker_process import BrokerProcess
from http_api import LISTEN, Api


def test_listing_tree_usage_and_delete_work_on_disk_alone(start_broker: Callable[..., BrokerProcess]) -> None:
    topics = [f"a/{n:02}/{name}" for n in range(40) for name in ("x", "y")]
    with Api(start_broker(listen=LISTEN, retainer__storage_type="disc_only")) as api:
        api.set_many(topics)
        assert sorted(api.topics(limit=7)) == topics
        assert sorted(api.topics(filter="a/+/y")) == [topic for topic in topics if topic.endswith("y")]
        root = [child for child in api.ok("GET", "/api/v1/tree")["children"] if not child["name"].startswith("$")]
        assert [(child["name"], child["count"], child["leaf"]) for child in root] == [("a", 80, False)]
        before = api.ok("GET", "/api/v1/tree", params={"prefix": "a", "limit": 20})
        level = api.ok("GET", "/api/v1/tree", params={"prefix": "a", "limit": 10, "after": before["next"]})
        assert [child["name"] for child in level["children"]] == [f"{n}" for n in range(20, 30)]
        leaves = api.ok("GET", "/api/v1/tree", params={"prefix": "a/07"})["children"]
        assert [(leaf["path"], leaf["leaf"], leaf["message"]["preview"]) for leaf in leaves] == [
            ("a/07/x", True, "1"),
            ("a/07/y", True, "1"),
        ]
        assert api.ok("GET", "/api/v1/retained/usage", params={"prefix": "a"})["count"] == 80
        token = api.ok("DELETE", "/api/v1/retained", params={"filter": "a/+/x"})["token"]
        query = {"filter": "a/+/x", "dry_run": False, "token": token}
        operation = api.ok("DELETE", "/api/v1/retained", params=query)["operation"]
        assert len(api.topics()) == 40
        assert api.ok("POST", f"/api/v1/operations/{operation}/undo")["restored"] == 40
        assert sorted(api.topics()) == topics
