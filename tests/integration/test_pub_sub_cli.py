"""`holdfast pub` and `holdfast sub` as commands, against Holdfast and against Debian's mosquitto."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from broker_process import BrokerProcess, Unique, serve_environment, start_mosquitto
from certificates import Authority
from holdfast.cli.main import build_app, main
from integration.conftest import Everywhere

Call = Callable[..., "Done"]
Publish = Callable[..., None]
LinesOf = Callable[..., list[bytes]]
Start = Callable[..., "Subscriber"]

COMMAND = [sys.executable, "-m", "holdfast"]


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    running = start_mosquitto(tmp_path_factory.mktemp("mosquitto"))
    yield running
    running.stop()


@pytest.fixture(params=["holdfast", "mosquitto"])
def port(request: pytest.FixtureRequest) -> int:
    """Of either broker: what these commands do may not depend on which one it is."""
    running: BrokerProcess = request.getfixturevalue("broker" if request.param == "holdfast" else "mosquitto")
    return running.port


class Done(NamedTuple):
    returncode: int
    stdout: bytes
    stderr: bytes


@pytest.fixture
def call(capfdbinary: pytest.CaptureFixture[bytes]) -> Call:
    """Run a command to its end: in this process, or in one of its own when it is to read standard input."""

    def run(*words: object, stdin: bytes | None = None) -> Done:
        arguments = [str(word) for word in words]
        if stdin is not None:
            done = subprocess.run([*COMMAND, *arguments], input=stdin, capture_output=True, env=serve_environment())
            return Done(done.returncode, done.stdout, done.stderr)
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        sys.stdout.flush()
        assert isinstance(caught.value.code, int)
        return Done(caught.value.code, *capfdbinary.readouterr())

    return run


@pytest.fixture
def publish(call: Call) -> Publish:
    def run(port: int, *words: object, stdin: bytes | None = None) -> None:
        done = call("pub", "-p", port, *words, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        assert done.stdout == b""

    return run


@pytest.fixture
def lines_of(call: Call) -> LinesOf:
    def run(port: int, *words: object, code: int = 0) -> list[bytes]:
        done = call("sub", "-p", port, *words)
        assert done.returncode == code, done.stderr.decode()
        return done.stdout.splitlines()

    return run


class Subscriber:
    """A running `holdfast sub`; after `wait` it is subscribed, for a retained message has come through it."""

    def __init__(self, port: int, ready: str, *words: object) -> None:
        command = [*COMMAND, "sub", "-p", str(port), "-t", ready, *map(str, words)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=serve_environment()
        )

    def wait(self) -> None:
        assert self.process.stdout is not None
        seen = b""
        while not seen.endswith(b"ready"):
            byte = self.process.stdout.read(1)
            assert byte, f"sub ended before it was subscribed, having printed {seen!r}"
            seen += byte

    def end(self, number: signal.Signals | None = None) -> tuple[int, bytes, str]:
        """Its exit code, what it printed after `wait`, and its errors."""
        if number is not None:
            self.process.send_signal(number)
        output, errors = self.process.communicate(timeout=120)
        return self.process.returncode, output.removeprefix(b"\n"), errors.decode()


@pytest.fixture
def subscriber(unique: Unique, publish: Publish) -> Iterator[Start]:
    started: list[Subscriber] = []

    def start(port: int, *words: object) -> Subscriber:
        ready = f"{unique}-ready-{len(started)}"
        publish(port, "-t", ready, "-m", "ready", "-r")
        started.append(Subscriber(port, ready, *words))
        started[-1].wait()
        return started[-1]

    yield start
    for item in started:
        if item.process.poll() is None:
            item.process.kill()
        item.process.communicate()


@pytest.mark.parametrize("version", ["31", "311", "5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_message_arrives_in_every_version_and_qos(
    port: int, unique: Unique, version: str, qos: str, publish: Publish, lines_of: LinesOf
) -> None:
    topic = unique.topic()
    publish(port, "-V", version, "-q", qos, "-t", topic, "-m", "grüße", "-r")
    found = lines_of(port, "-V", version, "-q", qos, "-t", topic, "-C", 1, "-F", "%t %p %q %r %l")
    assert found == [f"{topic} grüße {qos} 1 7".encode()]


def test_live_messages_come_in_order(port: int, unique: Unique, subscriber: Start, publish: Publish) -> None:
    listener = subscriber(port, "-t", unique.topic("live/#"), "-q", 1, "-v", "-C", 4)
    publish(port, "-t", unique.topic("live/a"), "-q", 1, "-l", stdin=b"one\n\nthree")
    code, output, _ = listener.end()
    topic = unique.topic("live/a").encode()
    assert code == 0
    assert output.splitlines() == [topic + b" one", topic + b" (null)", topic + b" three"]


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_thousand_lines_all_arrive(port: int, unique: Unique, subscriber: Start, qos: str, publish: Publish) -> None:
    """More than any window holds, so messages wait for acknowledgements on the way."""
    listener = subscriber(port, "-t", unique.topic(), "-q", qos, "-C", 1001)
    publish(
        port, "-t", unique.topic(), "-q", qos, "-l", stdin=b"".join(b"line %d\n" % number for number in range(1000))
    )
    code, output, _ = listener.end()
    assert code == 0
    assert output.splitlines() == [b"line %d" % number for number in range(1000)]


def test_message_from_file_stdin_and_nothing(
    port: int, unique: Unique, tmp_path: Path, call: Call, publish: Publish, lines_of: LinesOf
) -> None:
    content = bytes(range(256)) * 100
    file = tmp_path / "payload"
    file.write_bytes(content)
    publish(port, "-t", unique.topic("file"), "-f", file, "-r")
    publish(port, "-t", unique.topic("stdin"), "-s", "-r", stdin=content)
    for name in ("file", "stdin"):
        assert call("sub", "-p", port, "-t", unique.topic(name), "-C", 1, "-N").stdout == content
    publish(port, "-t", unique.topic("file"), "-n", "-r")
    assert lines_of(port, "-t", unique.topic("file"), "-W", 0.5, code=27) == []


def test_repeat_sends_it_again(port: int, unique: Unique, subscriber: Start, publish: Publish) -> None:
    listener = subscriber(port, "-t", unique.topic(), "-C", 4, "-N")
    started = time.monotonic()
    publish(port, "-t", unique.topic(), "-m", "x", "--repeat", 3, "-q", 1, "--repeat-delay", "0.1")
    assert time.monotonic() - started > 0.2
    assert listener.end()[1] == b"xxx"


def test_properties_go_there_and_come_back(port: int, unique: Unique, publish: Publish, lines_of: LinesOf) -> None:
    publish(
        port,
        *("-t", unique.topic(), "-m", "hi", "-r", "-q", 1),
        *("-D", "publish", "content-type", "text/plain", "-D", "publish", "response-topic", "answer"),
        *("-D", "publish", "user-property", "key", "-5", "-D", "publish", "user-property", "key", "second"),
        *("-D", "publish", "correlation-data", "abc", "-D", "publish", "payload-format-indicator", 1),
        *("-D", "publish", "message-expiry-interval", 100),
    )
    words = ["-t", unique.topic(), "-C", 1, "-V", 5, "-q", 1, "-D", "subscribe", "subscription-identifier", 9]
    assert lines_of(port, *words, "-F", "%C|%R|%P|%D|%F|%S") == [b"text/plain|answer|key:-5 key:second|abc|1|9"]
    message = json.loads(lines_of(port, *words, "-F", "%j")[0])
    assert message["properties"]["user-properties"] == {"key": ["-5", "second"]}
    assert 90 <= message["properties"]["message-expiry-interval"] <= 100


def test_alias_is_set_once_and_then_used(broker: BrokerProcess, unique: Unique, subscriber: Start, call: Call) -> None:
    listener = subscriber(broker.port, "-t", unique.topic(), "-v", "-C", 4)
    words = ["-D", "publish", "topic-alias", 1, "-d"]
    done = call("pub", "-p", broker.port, "-t", unique.topic(), "-m", "x", "--repeat", 3, *words)
    assert done.stderr.decode().count("sending PUBLISH (d0, q0, r0, m0, ''") == 2
    assert listener.end()[1].splitlines() == [f"{unique.topic()} x".encode()] * 3


def test_will_is_published_when_the_client_is_killed(port: int, unique: Unique, subscriber: Start) -> None:
    watcher = subscriber(port, "-t", unique.topic("will"), "-v", "-C", 2)
    dying = subscriber(port, "--will-topic", unique.topic("will"), "--will-payload", "gone", "--will-qos", 1)
    dying.process.kill()
    assert watcher.end()[1].splitlines() == [f"{unique.topic('will')} gone".encode()]


def test_kept_session_brings_what_was_missed(
    port: int, unique: Unique, call: Call, publish: Publish, lines_of: LinesOf
) -> None:
    words = ["-i", unique.client("kept"), "-c", "-q", 1, "-t", unique.topic()]
    assert call("sub", "-p", port, *words, "-E").returncode == 0
    publish(port, "-t", unique.topic(), "-q", 1, "-m", "missed")
    assert lines_of(port, *words, "-C", 1) == [b"missed"]
    assert lines_of(port, "-i", unique.client("kept"), "-t", unique.topic(), "-W", 0.5, code=27) == []


def test_retained_only_stops_at_the_first_live_message(
    port: int, unique: Unique, subscriber: Start, publish: Publish
) -> None:
    listener = subscriber(port, "-t", unique.topic("#"), "--retained-only")
    publish(port, "-t", unique.topic("live"), "-m", "live")
    code, output, _ = listener.end()
    assert (code, output) == (0, b"")


def test_retained_messages_can_be_left_out(port: int, unique: Unique, publish: Publish, lines_of: LinesOf) -> None:
    publish(port, "-t", unique.topic("a"), "-m", "kept", "-r")
    assert lines_of(port, "-t", unique.topic("#"), "-R", "-W", 0.5, code=27) == []


def test_remove_retained_clears_all_but_the_filtered_ones(
    port: int, unique: Unique, publish: Publish, lines_of: LinesOf
) -> None:
    for name in ("a", "b", "b/c", "keep"):
        publish(port, "-t", unique.topic(name), "-m", name, "-r")
    words = ["-t", unique.topic("#"), "-T", unique.topic("keep"), "--remove-retained", "--retained-only"]
    assert sorted(lines_of(port, *words)) == [b"a", b"b", b"b/c"]
    assert lines_of(port, "-t", unique.topic("#"), "-W", 0.5, code=27) == [b"keep"]


def test_unsubscribe_ends_a_kept_subscription(
    port: int, unique: Unique, call: Call, publish: Publish, lines_of: LinesOf
) -> None:
    words = ["-i", unique.client("kept"), "-c", "-q", 1]
    assert call("sub", "-p", port, *words, "-t", unique.topic("a"), "-t", unique.topic("b"), "-E").returncode == 0
    assert call("sub", "-p", port, *words, "-U", unique.topic("a"), "-E").returncode == 0
    publish(port, "-t", unique.topic("a"), "-q", 1, "-m", "no")
    publish(port, "-t", unique.topic("b"), "-q", 1, "-m", "yes")
    assert lines_of(port, *words, "-t", unique.topic("b"), "-C", 1) == [b"yes"]


def test_url_says_everything(port: int, unique: Unique, call: Call) -> None:
    assert call("pub", "-L", f"mqtt://127.0.0.1:{port}/{unique.topic()}", "-m", "by url", "-r").returncode == 0
    done = call("sub", "-L", f"mqtt://127.0.0.1:{port}/{unique}/#", "-C", 1)
    assert done.stdout == b"by url\n"


@pytest.mark.parametrize("kind", ["holdfast", "mosquitto"])
def test_websocket_carries_both_ways(request: pytest.FixtureRequest, unique: Unique, kind: str, call: Call) -> None:
    running = request.getfixturevalue("broker" if kind == "holdfast" else "mosquitto")
    url = f"ws://127.0.0.1:{running.ports['ws']}/mqtt"
    big = b"x" * 40_000
    assert call("pub", "-L", url, "-t", unique.topic(), "-s", "-r", "-q", 2, stdin=big).returncode == 0
    assert call("sub", "-L", url, "-t", unique.topic(), "-C", 1, "-q", 2, "-N").stdout == big


@pytest.mark.parametrize("transport", ["tls", "wss"])
def test_tls_carries_both_ways(everywhere: Everywhere, unique: Unique, call: Call, transport: str) -> None:
    words = ["-L", everywhere.url(transport), "--cafile", everywhere.ca, "-t", unique.topic(), "-q", 1]
    assert call("pub", *words, "-m", "secret", "-r").returncode == 0
    assert call("sub", *words, "-C", 1).stdout == b"secret\n"


def test_tls_by_port_and_cafile_alone(everywhere: Everywhere, unique: Unique, call: Call) -> None:
    words = ["-h", "localhost", "-p", everywhere.port("tls"), "--cafile", everywhere.ca, "-t", unique.topic()]
    assert call("pub", *words, "-m", "secret").returncode == 0


def test_unknown_certificate_is_one_clear_line_and_insecure_does_not_help(everywhere: Everywhere, call: Call) -> None:
    words = ["-h", "localhost", "-p", everywhere.port("tls"), "--tls-use-os-certs", "-t", "a", "-m", "x"]
    for extra in ([], ["--insecure"]):
        done = call("pub", *words, *extra)
        assert done.returncode == 1
        assert "its certificate is not trusted" in done.stderr.decode()


def test_insecure_accepts_another_name(everywhere: Everywhere, unique: Unique, call: Call) -> None:
    words = ["-h", "127.1", "-p", everywhere.port("tls"), "--cafile", everywhere.ca, "-t", unique.topic()]
    done = call("pub", *words, "-m", "x")
    assert done.returncode == 1
    assert "its certificate is not trusted" in done.stderr.decode()
    assert call("pub", *words, "-m", "x", "--insecure").returncode == 0


def test_own_certificate_opens_a_broker_that_asks_for_one(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, unique: Unique, call: Call
) -> None:
    authority = Authority(tmp_path / "certificates")
    server_cert, server_key = authority.issue("localhost", "server")
    cert, key = authority.issue("client", "client")
    running = start_broker(
        listen=["tls://127.0.0.1:0"],
        tls__cert=server_cert,
        tls__key=server_key,
        tls__ca=authority.ca,
        tls__require_client_certificate=True,
    )
    words = ["-h", "localhost", "-p", running.ports["tls"], "--cafile", authority.ca, "-t", unique.topic(), "-m", "x"]
    assert call("pub", *words, "-q", 1).returncode == 1
    done = call("pub", *words, "-q", 1, "--cert", cert, "--key", key)
    assert done.returncode == 0, done.stderr.decode()


def test_plain_text_to_a_tls_port_is_one_clear_line(everywhere: Everywhere, call: Call) -> None:
    done = call("pub", "-h", "localhost", "-p", everywhere.port("tls"), "-t", "a", "-m", "x")
    assert done.returncode == 1
    assert "is it MQTT?" in done.stderr.decode()


def test_websocket_on_a_wrong_path_is_one_clear_line(broker: BrokerProcess, call: Call) -> None:
    done = call("sub", "-L", f"ws://127.0.0.1:{broker.ports['ws']}/elsewhere", "-t", "a")
    assert done.returncode == 1
    assert "HTTP 404 for /elsewhere - is the path right?" in done.stderr.decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_sub_ends_cleanly_on_a_signal(broker: BrokerProcess, subscriber: Start, number: signal.Signals) -> None:
    code, output, errors = subscriber(broker.port, "-d").end(number)
    assert (code, output) == (0, b"")
    assert errors.splitlines()[-1].startswith("sending DISCONNECT")


def test_sub_connects_and_subscribes_again_after_a_restart(
    start_broker: Callable[..., BrokerProcess], unique: Unique, subscriber: Start, tmp_path: Path, publish: Publish
) -> None:
    first = start_broker(data=tmp_path / "data")
    listener = subscriber(first.port, "-t", unique.topic(), "-C", 3, "-q", 1)
    first.stop()
    second = start_broker(data=tmp_path / "data", listen=[f"tcp://127.0.0.1:{first.port}"])
    deadline = time.monotonic() + 120
    while listener.process.poll() is None and time.monotonic() < deadline:
        publish(second.port, "-t", unique.topic(), "-m", "after")
        time.sleep(0.1)
    assert b"after" in listener.end()[1].splitlines()


def test_sub_stops_when_its_reader_has_seen_enough(broker: BrokerProcess, unique: Unique, publish: Publish) -> None:
    publish(broker.port, "-t", unique.topic("first"), "-m", "x" * 100, "-r")
    shell = f"{' '.join(COMMAND)} sub -p {broker.port} -t '{unique}/#' | head -c 10; exit ${{PIPESTATUS[0]}}"
    listener = subprocess.Popen(
        ["bash", "-c", shell], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=serve_environment()
    )
    deadline = time.monotonic() + 120
    while listener.poll() is None and time.monotonic() < deadline:
        publish(broker.port, "-t", unique.topic("more"), "-m", "y")
        time.sleep(0.1)
    output, errors = listener.communicate(timeout=120)
    assert (listener.returncode, output, errors) == (0, b"x" * 10, b"")


def test_pub_ends_when_the_broker_goes_while_it_waits_for_input(
    start_broker: Callable[..., BrokerProcess], unique: Unique
) -> None:
    running = start_broker()
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [*COMMAND, "pub", "-p", str(running.port), "-t", unique.topic(), "-l", "-d"],
        stdin=read_end,
        stderr=subprocess.PIPE,
        env=serve_environment(),
    )
    os.close(read_end)
    os.write(write_end, b"first\n")
    assert process.stderr is not None
    seen = b""
    while b"sending PUBLISH" not in seen:
        seen = process.stderr.readline()
        assert seen, "pub ended before it published"
    running.kill()
    errors = process.communicate(timeout=120)[1].decode()
    os.close(write_end)
    assert process.returncode == 7
    assert "lost the connection to localhost" in errors


def test_refused_connection_exits_with_the_reason(start_broker: Callable[..., BrokerProcess], call: Call) -> None:
    running = start_broker(auth__allow_anonymous=False)
    for version, code in (("311", 5), ("5", 135)):
        done = call("pub", "-p", running.port, "-V", version, "-t", "a", "-m", "x")
        assert done.returncode == code
        assert "refused the connection: not authorized" in done.stderr.decode()


def test_a_refused_subscription_is_explained_where_the_protocol_gives_no_reason(
    start_broker: Callable[..., BrokerProcess], call: Call, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[access]]\npermission = "deny"\naction = "subscribe"\nfilter = "a/#"\n')
    running = start_broker(args=("--config", str(rules)))
    for version, code, why in (("311", 128, "the access rules do not allow it"), ("5", 135, "not authorized")):
        done = call("sub", "-p", running.port, "-V", version, "-t", "a/#", "-W", "5")
        assert (done.returncode, why in done.stderr.decode()) == (code, True), done.stderr


ONE_LINERS = [
    (["pub", "-p", "1", "-t", "a", "-m", "x"], "could not connect to localhost:1: refused - is the broker running?"),
    (["sub", "-h", "no.such.host.invalid", "-t", "a"], "could not connect to no.such.host.invalid:1883"),
    (["pub", "--unix", "/nowhere", "-t", "a", "-m", "x"], "no such socket - is the broker running?"),
    (["pub", "-m", "x"], "no topic given: -t TOPIC"),
    (["pub", "-t", "a"], "nothing given, expected one of -m, -f, -l, -s and -n"),
    (["pub", "-t", "a", "-m", "x", "-n"], "-m and -n given"),
    (["pub", "-t", "a/#", "-m", "x"], "topic is 'a/#'"),
    (["pub", "-t", "a", "-f", "/nowhere"], "cannot read /nowhere: no such file"),
    (["pub", "-t", "a", "-m", "x", "-D", "publish", "nonsense", "1"], "no such property"),
    (["sub"], "no topic filter given: -t FILTER"),
    (["sub", "-t", "a/#/b"], "topic filter is 'a/#/b'"),
    (["sub", "-t", "$share/a"], "topic filter '$share/a'"),
    (["sub", "-t", "a", "-F", "%z"], "%z does not exist"),
    (["sub", "-t", "a", "-c"], "needs a client id: -i ID"),
    (["sub", "-t", "a", "-R", "--retained-only"], "leave nothing to print"),
    (["sub", "-t", "a", "--no-local"], "need MQTT 5: -V 5"),
    (["sub", "-t", "a", "--cafile", "/nowhere"], "TLS cannot be set up: No such file"),
]


@pytest.mark.parametrize(("words", "message"), ONE_LINERS, ids=[" ".join(words) for words, _ in ONE_LINERS])
def test_what_cannot_work_is_one_clear_line_and_exit_code_1(words: list[str], message: str, call: Call) -> None:
    done = call(*words)
    assert done.returncode == 1
    assert done.stdout == b""
    assert len(done.stderr.decode().splitlines()) == 1
    assert done.stderr.decode().startswith("holdfast: ")
    assert message in done.stderr.decode()


def test_quiet_prints_no_errors(call: Call) -> None:
    done = call("pub", "-p", "1", "-t", "a", "-m", "x", "--quiet")
    assert (done.returncode, done.stderr) == (1, b"")


def test_timeout_exits_with_27(broker: BrokerProcess, unique: Unique, call: Call) -> None:
    done = call("sub", "-p", broker.port, "-t", unique.topic(), "-W", "0.3")
    assert (done.returncode, done.stderr.decode()) == (27, "holdfast: timed out after 0.3 s\n")


@pytest.mark.parametrize("command", ["pub", "sub"])
def test_help_has_examples(command: str, call: Call) -> None:
    done = call(command, "--help")
    assert done.returncode == 0
    assert done.stdout.decode().count(f"holdfast {command} -") >= 5


@pytest.mark.parametrize("command", ["pub", "sub"])
def test_every_flag_stands_in_the_docs(command: str) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "reference" / "pub-sub.md").read_text()
    app = get_command(build_app(command))
    assert isinstance(app, TyperGroup)
    parameters = app.commands[command].params
    flags = [flag for parameter in parameters for flag in parameter.opts]
    assert len(flags) > 50
    assert [flag for flag in flags if f"`{flag}`" not in docs] == []
