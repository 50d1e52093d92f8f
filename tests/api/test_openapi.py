"""The OpenAPI document and the API agree: requests are made up from the one and sent to the other."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from broker_process import BrokerProcess, start_holdfast
from holdfast.api import bridges, cluster, operator, v1, v5
from holdfast.api.app import add_health
from holdfast.api.auth import OPEN_PATHS
from holdfast.api.problem import MEDIA_TYPE, Details
from http_api import LISTEN, Api
from seeds import EFFORT

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    unsupported_method,
]


@pytest.fixture(scope="module")
def played_with(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of its own: made-up requests delete everything and switch retaining off."""
    running = start_holdfast(tmp_path_factory.mktemp("openapi"), listen=LISTEN)
    with Api(running) as api:
        api.set_many([f"a/{n}" for n in range(20)], '{"x": 1}')
        api.history("a/19", 1)
    yield running
    assert "Traceback" not in running.output, running.output
    running.stop()


@pytest.fixture(scope="module")
def document(played_with: BrokerProcess) -> Any:
    return schemathesis.openapi.from_url(f"http://127.0.0.1:{played_with.ports['http']}/openapi.json")


def operations() -> list[tuple[str, str]]:
    """Every method and path, from the code: the broker does not run yet when tests are collected."""
    app = FastAPI()
    app.include_router(v1.router)
    app.include_router(operator.router)
    app.include_router(bridges.router)
    app.include_router(cluster.router)
    app.include_router(v5.router)
    add_health(app)
    return [(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods]


@pytest.mark.parametrize(("method", "path"), operations())
def test_every_answer_is_one_that_the_document_describes(document: Any, method: str, path: str) -> None:
    @given(case=document[path][method].as_strategy())
    @settings(max_examples=10 * EFFORT, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def send(case: Any) -> None:
        case.call_and_validate(checks=CHECKS)

    send()


def test_every_operation_says_what_it_is_for(played_with: BrokerProcess) -> None:
    with Api(played_with) as api:
        paths = api.ok("GET", "/openapi.json")["paths"]
    found = [(method.upper(), path, one) for path, methods in paths.items() for method, one in methods.items()]
    assert {(method, path) for method, path, _ in found} == set(operations())
    assert [(method, path) for method, path, one in found if not one.get("summary")] == []


def test_the_document_says_how_to_log_in_and_what_needs_none(played_with: BrokerProcess) -> None:
    with Api(played_with) as api:
        document = api.ok("GET", "/openapi.json")
    schemes = document["components"]["securitySchemes"]
    assert {one["type"] for one in schemes.values()} == {"http", "apiKey"}
    assert {name for way in document["security"] for name in way} == set(schemes)
    operations = [(path, one) for path, methods in document["paths"].items() for one in methods.values()]
    assert {path for path, one in operations if one.get("security") == []} == set(OPEN_PATHS)


def test_every_body_has_an_example_that_is_taken_and_every_error_one_of_its_shape(played_with: BrokerProcess) -> None:
    with Api(played_with) as api:
        document = api.ok("GET", "/openapi.json")
        for path, methods in document["paths"].items():
            for method, one in methods.items():
                body = one.get("requestBody", {}).get("content", {}).get("application/json")
                if body is not None:
                    answer = api.request(method, path, json=body["example"])
                    assert answer.status_code != 422, (method, path, answer.text)
                problems = [answer.get("content", {}).get(MEDIA_TYPE) for answer in one["responses"].values()]
                for problem in problems:
                    assert problem is None or Details.model_validate(problem["example"], strict=True)
                if path not in OPEN_PATHS and path.startswith("/api/"):
                    assert {"401", "403"} <= set(one["responses"]), (method, path)
