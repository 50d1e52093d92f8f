"""Log servers that are not as they should be: each is met with one sentence that says expected and got."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any, cast

import pytest

from certificates import Authority
from holdfast.cluster.options import ConnectionOptions, StreamOptions
from holdfast.cluster.stream import OtherLog, State, Trimmed
from holdfast.errors import ConfigError, HoldfastError, Refused, TooLarge
from log_nodes import PATIENCE_S, LogNode, run, until
from log_servers import LogServer, LogServers, Variant

ALONE = StreamOptions(replicas=1)


async def failure(node: LogNode, after: int = 0, identity: str = "") -> HoldfastError:
    """What the start of a node fails with."""
    try:
        await asyncio.wait_for(node.start(after, identity), PATIENCE_S)
    except HoldfastError as e:
        return e
    finally:
        await node.stop()
    raise AssertionError("it started")


def test_servers_that_are_not_there_yet_are_waited_for(tmp_path: Path) -> None:
    async def story() -> None:
        servers = LogServers(tmp_path, count=1)
        a = LogNode(servers.urls, "a", ALONE)
        starting = asyncio.create_task(a.start())
        await a.is_in(State.CONNECTING, "no log server was reached")
        assert a.stream.why.endswith(f"{servers[0].url}: Connection refused")
        try:
            await asyncio.to_thread(servers.start)
            await starting
            await a.is_in(State.READY)
            await a.stop()
        finally:
            servers.close()

    run(story())


def test_servers_that_go_away_later_are_named_and_found_again(tmp_path: Path) -> None:
    async def story(servers: LogServers) -> None:
        a = await LogNode(servers.urls, "a", ALONE).start()
        await a.is_in(State.READY)
        servers[0].stop()
        await a.is_in(State.AWAY, f"no connection to a log server: {servers[0].url}")
        await asyncio.to_thread(servers.start)
        await a.is_in(State.READY)
        states = [state for state, _ in a.states]
        assert states.count(State.AWAY) < 5, "it is not said again with every attempt"
        await a.stop()

    with LogServers(tmp_path, count=1) as servers:
        run(story(servers))


@pytest.mark.parametrize(
    ("variant", "right"),
    [
        (Variant(user="holdfast", password="secret"), {"user": "holdfast", "password": "secret"}),
        (Variant(token="s3cret"), {"token": "s3cret"}),
    ],
    ids=["password", "token"],
)
def test_wrong_credentials_are_refused_at_once_and_right_ones_work(
    tmp_path: Path, variant: Variant, right: dict[str, str]
) -> None:
    async def story(servers: LogServers) -> None:
        urls = tuple(servers.urls)
        wrong = {**right, list(right)[-1]: "wrong"}
        for options in (ConnectionOptions(urls), ConnectionOptions(urls, **wrong)):  # type: ignore[arg-type]
            said = await failure(LogNode(urls, "a", ALONE, options))
            assert isinstance(said, Refused)
            assert str(said) == f"{urls[0]}: the server refuses us: Authorization Violation"
        options = ConnectionOptions(urls, **right)  # type: ignore[arg-type]
        await (await LogNode(urls, "a", ALONE, options).start()).stop()
        login = f"{right['user']}:{right['password']}" if "user" in right else right["token"]
        in_url = urls[0].replace("://", f"://{login}@")
        await (await LogNode([in_url], "a", ALONE).start()).stop()

    with LogServers(tmp_path, count=1, variant=variant) as servers:
        run(story(servers))


def test_a_key_opens_the_door_that_is_shut_without_it(tmp_path: Path) -> None:
    """Seed and public key are the published example of the NATS documentation."""
    public = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
    (tmp_path / "seed").write_text("SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY\n")
    variant = Variant(extra=f"authorization {{ users: [ {{ nkey: {public} }} ] }}")

    async def story(servers: LogServers) -> None:
        urls = tuple(servers.urls)
        assert isinstance(await failure(LogNode(urls, "a", ALONE)), Refused)
        options = ConnectionOptions(urls, nkey_seed_file=tmp_path / "seed")
        await (await LogNode(urls, "a", ALONE, options).start()).stop()

    with LogServers(tmp_path / "log", count=1, variant=variant) as servers:
        run(story(servers))


def test_a_password_is_not_shown() -> None:
    options = ConnectionOptions(("nats://a:secret@h:1",), user="u", password="secret", token="s3cret")
    for shown in (repr(options), options.servers):
        assert "secret" not in shown
        assert "s3cret" not in shown


def test_the_certificate_of_a_server_is_verified_and_ours_shown(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.issue("localhost", "server")
    mine, my_key = authority.issue("node", "client")
    variant = Variant(certificate=certificate, key=key, ca=authority.ca)

    async def story(servers: LogServers) -> None:
        urls = tuple(servers.urls)
        unknown = await failure(LogNode(urls, "a", ALONE))
        assert isinstance(unknown, Refused)
        assert "certificate verify failed" in str(unknown)
        options = ConnectionOptions(urls, tls_ca=authority.ca, tls_cert=mine, tls_key=my_key)
        a = await LogNode(urls, "a", ALONE, options).start()
        a.send(20, size=300_000)
        await a.all_back()
        await a.stop()

    with LogServers(tmp_path / "log", count=1, variant=variant) as servers:
        run(story(servers))


def test_tls_where_the_server_has_none_is_refused(tmp_path: Path) -> None:
    async def story(servers: LogServers) -> None:
        url = servers.urls[0].replace("nats://", "tls://")
        assert "expected TLS, and the server does not offer it" in str(await failure(LogNode([url], "a", ALONE)))

    with LogServers(tmp_path, count=1) as servers:
        run(story(servers))


def test_files_that_are_no_certificates_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")

    async def story() -> None:
        with pytest.raises(ConfigError, match="TLS to the log servers cannot be set up"):
            LogNode([], "a", connection=ConnectionOptions(("tls://localhost",), tls_ca=tmp_path / "ca.pem"))

    run(story())


def settings(**changed: Any) -> dict[str, Any]:
    good = {"name": "HF_holdfast", "subjects": ["holdfast.holdfast.log"], "num_replicas": 1, "storage": "file"}
    good |= {"discard": "new", "deny_delete": True}
    return {key: value for key, value in (good | changed).items() if value is not None}


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (settings(storage="memory"), "storage: expected file, got memory"),
        (settings(discard="old"), "discard: expected new, got old"),
        (settings(max_age=3_600_000_000_000), "max_age: expected 0, got 3600000000000"),
        (settings(max_msgs=1000), "max_msgs: expected -1, got 1000"),
        (settings(deny_delete=False), "deny_delete: expected true, got false"),
        (settings(retention="interest"), "retention: expected limits, got interest"),
        (settings(subjects=["holdfast.>"]), 'subjects: expected ["holdfast.holdfast.log"], got ["holdfast.>"]'),
        (settings(allow_rollup_hdrs=True), "allow_rollup_hdrs: expected false, got true"),
        (settings(persist_mode="async"), "persist_mode: expected default, got async"),
        (
            settings(storage="memory", discard="old"),
            "storage: expected file, got memory; discard: expected new, got old",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_stream_with_other_settings_is_refused_with_each_difference(
    tmp_path: Path, there: dict[str, Any], said: str
) -> None:
    with LogServers(tmp_path, count=1) as servers:
        made = servers.request("$JS.API.STREAM.CREATE.HF_holdfast", there)
        assert "error" not in made, made
        refused = run_failure(servers, ALONE)
    assert isinstance(refused, ConfigError)
    assert said in str(refused)


def run_failure(servers: LogServers, options: StreamOptions, after: int = 0, identity: str = "") -> HoldfastError:
    async def story() -> HoldfastError:
        return await failure(LogNode(servers.urls, "a", options), after, identity)

    return run(story())


def test_settings_that_are_the_operators_are_left_alone(tmp_path: Path) -> None:
    async def story(servers: LogServers) -> None:
        await (await LogNode(servers.urls, "a", ALONE).start()).stop()

    with LogServers(tmp_path, count=1) as servers:
        servers.request("$JS.API.STREAM.CREATE.HF_holdfast", settings(max_bytes=50_000_000, description="ours"))
        run(story(servers))


def test_fewer_copies_than_asked_for_are_refused(tmp_path: Path) -> None:
    with LogServers(tmp_path) as servers:
        servers.request("$JS.API.STREAM.CREATE.HF_holdfast", settings())
        refused = run_failure(servers, StreamOptions(replicas=3))
    assert "num_replicas: expected 3, got 1" in str(refused)


def test_three_copies_on_a_server_that_stands_alone_are_refused(tmp_path: Path) -> None:
    with LogServers(tmp_path, count=1) as servers:
        refused = run_failure(servers, StreamOptions(replicas=3))
    assert isinstance(refused, ConfigError)
    assert "expected log servers that form a cluster, to keep 3 copies, got one that stands alone" in str(refused)


def test_servers_that_answer_before_the_disk_has_it_are_refused(tmp_path: Path) -> None:
    with LogServers(tmp_path, count=1, variant=Variant(sync_always=False)) as servers:
        refused = run_failure(servers, StreamOptions(replicas=1, monitors=tuple(servers.monitor_urls)))
        monitor = servers[0].monitor_url
    assert isinstance(refused, ConfigError)
    assert f"expected `sync_interval: always` on the log server at {monitor}, got a sync every 120 s" in str(refused)


def test_servers_that_cannot_be_asked_about_the_disk_are_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(servers: LogServers) -> None:
        for monitors in ((), tuple(servers.monitor_urls), ("http://127.0.0.1:1",)):
            await (await LogNode(servers.urls, "a", StreamOptions(replicas=1, monitors=monitors)).start()).stop()

    with LogServers(tmp_path, count=1) as servers, caplog.at_level(logging.WARNING, "holdfast.cluster"):
        run(story(servers))
    said = [vars(record)["detail"] for record in caplog.records]
    assert len(said) == 2
    assert "Name their monitoring addresses in cluster.monitor to have it checked" in said[0]
    assert said[1].startswith("it was not checked whether http://127.0.0.1:1 has `sync_interval: always`")


def test_a_server_without_jetstream_is_refused(tmp_path: Path) -> None:
    server = LogServer(1, tmp_path)
    server.configure([], 0)
    written = (tmp_path / "server.conf").read_text().splitlines()
    (tmp_path / "server.conf").write_text("\n".join(line for line in written if not line.startswith("jetstream")))

    async def story() -> None:
        said = await failure(LogNode([server.url], "a", ALONE))
        assert "expected a server with JetStream, and it is not enabled there" in str(said)

    try:
        server.start()
        run(story())
    finally:
        server.kill()


class Pretender(asyncio.Protocol):
    """Something that greets like a NATS server of another version, or like no NATS server."""

    greeting = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self.greeting)


@pytest.mark.parametrize(
    ("greeting", "said"),
    [
        (
            b'INFO {"version":"2.12.5","jetstream":true,"max_payload":1048576}\r\n',
            "expected nats-server 2.12.6 or later, got 2.12.5",
        ),
        (b'INFO {"version":"2.9.10","jetstream":true}\r\n', "expected nats-server 2.12.6 or later, got 2.9.10"),
        (b'INFO {"jetstream":true}\r\n', "expected nats-server 2.12.6 or later, got ?"),
    ],
)
def test_a_server_that_is_too_old_is_refused(greeting: bytes, said: str) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        pretender = type("Greeting", (Pretender,), {"greeting": greeting})
        server = await loop.create_server(pretender, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        refused = await failure(LogNode([f"nats://127.0.0.1:{port}"], "a", ALONE))
        assert isinstance(refused, Refused)
        assert str(refused) == f"nats://127.0.0.1:{port}: {said}"
        server.close()

    run(story())


def test_something_that_is_no_nats_server_is_named(tmp_path: Path) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        pretender = type("Greeting", (Pretender,), {"greeting": b"220 mail.example ESMTP\r\n"})
        server = await loop.create_server(pretender, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        a = LogNode([f"nats://127.0.0.1:{port}"], "a", ALONE)
        starting = asyncio.create_task(a.start())
        await a.is_in(State.CONNECTING, "expected the NATS protocol, got b'220 mail.example ESMTP'")
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await a.stop()
        server.close()

    run(story())


def test_a_message_larger_than_the_servers_take_is_refused(tmp_path: Path) -> None:
    async def story(servers: LogServers) -> None:
        small = ConnectionOptions(tuple(servers.urls), max_message=60_000)
        a = await LogNode([], "a", ALONE, small).start()
        with pytest.raises(TooLarge, match="a message of 60001 bytes for the log: expected no more than 60000"):
            a.stream.send(1, b"." * 60_001)
        a.send(3)
        await a.all_back()
        await a.stop()
        said = await failure(LogNode(servers.urls, "a", ALONE))
        assert "expected messages of 1048576 bytes to be allowed, got max_payload 65536" in str(said)

    with LogServers(tmp_path, count=1, variant=Variant(max_payload=65536)) as servers:
        run(story(servers))


def test_a_full_log_is_said_and_written_to_when_there_is_room_again(tmp_path: Path) -> None:
    async def story(servers: LogServers) -> None:
        a = await LogNode(servers.urls, "a", StreamOptions(replicas=1, max_bytes=1_000_000)).start()
        a.send(12, size=100_000)
        await a.is_in(State.AWAY, "the log is full")
        assert a.stream.waiting > 0
        assert a.last["a"] == 12 - a.stream.waiting
        await a.stream.trim(a.stream.position)
        await a.all_back()
        await a.is_in(State.READY)
        assert a.taken == [("a", counter) for counter in range(1, 13)]
        await a.stop()

    with LogServers(tmp_path, count=1) as servers:
        run(story(servers))


def test_a_log_that_was_cut_needs_the_state_of_another_node(tmp_path: Path) -> None:
    async def story(servers: LogServers) -> None:
        a = await LogNode(servers.urls, "a", ALONE).start()
        a.send(100)
        await a.all_back()
        await a.stream.trim(51)
        await a.stop()
        said = await failure(LogNode(servers.urls, "b", ALONE), after=20)
        assert isinstance(said, Trimmed)
        assert said.first == 51
        assert "expected to go on with message 21 of the log" in str(said)

    with LogServers(tmp_path, count=1) as servers:
        run(story(servers))


def test_a_log_that_is_shorter_than_what_was_read_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.cluster.stream.SETTLE_S", 0.5)
    with LogServers(tmp_path, count=1) as servers:
        refused = run_failure(servers, ALONE, after=20)
    assert isinstance(refused, OtherLog)
    assert "ends at message 0, and this node has read 20 already" in str(refused)


def test_a_stream_that_was_made_anew_is_another_one(tmp_path: Path) -> None:
    async def story(servers: LogServers) -> None:
        a = await LogNode(servers.urls, "a", ALONE).start()
        a.send(10)
        await a.all_back()
        was = a.stream.identity
        await asyncio.to_thread(servers.request, "$JS.API.STREAM.DELETE.HF_holdfast")
        await a.is_in(State.FAILED, "it was deleted on the log servers")
        await a.stop()
        b = await LogNode(servers.urls, "b", ALONE).start()
        b.send(10)
        await b.all_back()
        await b.stop()
        said = await failure(LogNode(servers.urls, "a", ALONE), after=10, identity=was)
        assert isinstance(said, OtherLog)
        assert f"comes from one that was made {was}" in str(said)

    with LogServers(tmp_path, count=1) as servers:
        run(story(servers))


@pytest.mark.parametrize("url", ["http://host:4222", "nats://", "nats://host:port", ""])
def test_what_is_no_url_of_a_log_server_is_refused(url: str) -> None:
    async def story() -> None:
        with pytest.raises(ConfigError, match="expected the URL of a log server such as nats://host:4222"):
            LogNode([url], "a")

    run(story())


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a*", "a>"])
def test_a_name_of_a_cluster_that_is_no_part_of_a_subject_is_refused(name: str) -> None:
    async def story() -> None:
        with pytest.raises(ConfigError, match="in the name of the cluster"):
            LogNode(["nats://h"], "a", StreamOptions(name=name))

    run(story())


def test_a_right_that_is_missing_is_named(tmp_path: Path) -> None:
    """A user who may do everything but write to the log."""
    rule = json.dumps({"publish": {"deny": ["holdfast.holdfast.log"]}})
    extra = f'authorization {{ users: [ {{ user: "u", password: "p", permissions: {rule} }} ] }}'

    async def story(servers: LogServers) -> None:
        options = ConnectionOptions(tuple(servers.urls), user="u", password="p")
        a = await LogNode([], "a", ALONE, options).start()
        a.send(1)
        await until(
            lambda: any("Permissions Violation for Publish" in why for _, why in a.states), "the right is named"
        )
        await a.stop()

    with LogServers(tmp_path, count=1, variant=Variant(extra=extra)) as servers:
        run(story(servers))
