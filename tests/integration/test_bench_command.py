"""`holdfast bench` as a user calls it: a process, its output, its exit code."""

import json

from broker_process import BrokerProcess, Unique
from command_line import Done, holdfast_process


def bench(*arguments: str) -> Done:
    return holdfast_process("bench", *arguments)


def test_help_shows_an_example() -> None:
    done = bench("--help")
    assert done.returncode == 0
    assert "holdfast bench pair" in done.stdout


def test_json_is_all_there_is_on_stdout(broker: BrokerProcess, unique: Unique) -> None:
    done = bench("pair", "-p", str(broker.port), "-n", "500", "-q", "1", "-t", f"{unique}/%i", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert (figures["scenario"], figures["received"], figures["lost"]) == ("pair", 500, 0)
    assert figures["busy"].keys() == {"publishers", "subscribers", "cores", "broker", "generator"}
    assert figures["busy"]["broker"] is None


def test_summary_names_rates_and_losses(broker: BrokerProcess, unique: Unique) -> None:
    load = ("-n", "100", "-t", f"{unique}/f", "--pid", str(broker.pid))
    done = bench("fanout", "-c", "2", "-p", str(broker.port), *load)
    assert done.returncode == 0
    for name in ("sent/s", "received/s", "received MB/s", "lost", "publishers busy", "subscribers busy", "broker busy"):
        assert name in done.stdout


def test_nothing_received_is_exit_code_1(broker: BrokerProcess, unique: Unique) -> None:
    done = bench("sub", "-p", str(broker.port), "-t", f"{unique}/none", "--duration", "0.2")
    assert done.returncode == 1
    assert "nothing was received" in done.stderr


def test_unknown_scenario_lists_the_known_ones() -> None:
    done = bench("pairs")
    assert done.returncode == 1
    assert done.stderr == (
        "holdfast bench: unknown scenario 'pairs', expected one of pub, sub, conn, pair, fanout, latency, retained\n"
    )


def test_rate_and_interval_together_are_refused() -> None:
    done = bench("pair", "--rate", "5", "-I", "10")
    assert done.returncode == 1
    assert "got both --rate and --interval" in done.stderr
