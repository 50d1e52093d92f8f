"""`holdfast cluster`: the nodes of a cluster through any of them, and the beginning of one."""

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from holdfast.cli.options import Assignments, Cluster, Config, Data, NodeName, cluster_assignments
from holdfast.cli.retained_display import escape, notes, out
from holdfast.cli.retained_options import DEFAULT_URL, Key, Url
from holdfast.cli.retained_source import ApiClient
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.config import Settings

WRONG = 1
CONNECT_S = 30.0
HASH_SHOWN = 12  # characters of a hash that are enough to see whether two are the same

Node = Annotated[str, typer.Argument(metavar="NODE", help="The name of a node.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")


@app.callback()
def cluster() -> None:
    """
    Show, drain, remove and compare the nodes of a cluster, or turn a single broker into one.

    Asks any running node (`--url`, or HOLDFAST_URL) through its HTTP listener. The exit code is 0 on success, 1 if
    something is wrong or failed, 2 for a usage error.

    Examples:

        holdfast cluster status

        holdfast cluster drain b --url http://h1:18083

        holdfast cluster verify
    """


@app.command()
def status(url: Url = DEFAULT_URL, key: Key = "", as_json: AsJson = False) -> None:
    """
    Show the nodes: epoch, position in the log, lag, and whether their state agrees.

    The exit code is 1 if a node is down, not ready or disagrees, or if the broker is not part of a cluster.

    Examples:

        holdfast cluster status

        holdfast cluster status --json | jq '.nodes[] | select(.lag > 0)'
    """
    told = node_at(url, key).call("GET", "/cluster")
    if as_json:
        print(json.dumps(told, indent=2, ensure_ascii=False))
    elif told["alone"]:
        out.print(
            "this broker is not part of a cluster; `holdfast serve --cluster URLS --node NAME` starts a node of one"
        )
    else:
        print_status(told)
    raise typer.Exit(WRONG if told["alone"] or not all(map(is_well, told["nodes"])) else 0)


def node_at(url: str, key: str) -> ApiClient:
    return ApiClient(url, key, "--url names another node")


def is_well(node: dict[str, Any]) -> bool:
    return bool(node["up"] and node["heard"] and node.get("ready")) and node.get("agrees") is not False


def print_status(told: dict[str, Any]) -> None:
    log = told["log"]
    out.print(f"cluster {escape(told['name'])}, seen from node {escape(told['node'])}; log at message {log['last']}")
    leader = f"leader {escape(log['leader'])}" if log["leader"] else "no leader known"
    lagging = ", ".join(server_text(name, count) for name, count in sorted(log["lagging"].items()))
    out.print(f"log servers: {leader}{f'; behind or gone: {lagging}' if lagging else ''}")
    table = Table("node", "state", "epoch", "position", "lag", "hash", "clients", "address", box=None, pad_edge=False)
    for node in told["nodes"]:
        cells = [
            node["name"],
            state_text(node),
            node["epoch"],
            number_text(node.get("position")),
            number_text(node.get("lag")),
            hash_text(node),
            number_text(node.get("clients")),
            node["address"],
        ]
        table.add_row(*(escape(str(cell)) for cell in cells), style="" if is_well(node) else "red")
    out.print(table)
    for node in told["nodes"]:
        if node.get("detail"):
            out.print(f"{escape(node['name'])}: {escape(node['detail'])}")
    behind = [node["name"] for node in told["nodes"] if node.get("lag")]
    if behind:
        out.print(f"behind: {escape(', '.join(behind))}")


def server_text(name: str, behind: int) -> str:
    return f"{escape(name)} by {behind}" if behind else escape(name)


def state_text(node: dict[str, Any]) -> str:
    if not node["up"]:
        return "down"
    if not node["heard"]:
        return "silent"
    return "ready" if node.get("ready") else "not ready"


def number_text(number: int | None) -> str:
    return "" if number is None else str(number)


def hash_text(node: dict[str, Any]) -> str:
    differs = " DIFFERS" if node.get("agrees") is False else ""
    return f"{(node.get('hash') or '')[:HASH_SHOWN]}{differs}"


@app.command()
def drain(node: Node, url: Url = DEFAULT_URL, key: Key = "", as_json: AsJson = False) -> None:
    """
    Move the clients of a node to the others, and accept no new ones on it until it is restarted.

    The node keeps reading the log, and can be stopped without clients noticing. MQTT 5 clients are sent a Server
    Reference if the nodes have `cluster.advertise` set.

    Examples:

        holdfast cluster drain b
    """
    done = node_at(url, key).call("POST", "/cluster/drain", node=node)
    tell(done, as_json, f"node {node} is drained; stop it, or start it again to bring it back")


@app.command()
def remove(node: Node, url: Url = DEFAULT_URL, key: Key = "", as_json: AsJson = False) -> None:
    """
    Forget a node that will not come back. It must be stopped; the sessions of its clients are kept.

    Examples:

        holdfast cluster remove b
    """
    done = node_at(url, key).call("POST", "/cluster/remove", node=node)
    tell(done, as_json, f"node {node} is removed")


def tell(done: dict[str, Any], as_json: bool, text: str) -> None:
    if as_json:
        print(json.dumps(done, ensure_ascii=False))
    else:
        out.print(escape(text), soft_wrap=True)


@app.command()
def verify(url: Url = DEFAULT_URL, key: Key = "", as_json: AsJson = False) -> None:
    """
    Compare a hash of the retained messages and sessions of every node at the same log position.

    The exit code is 1 if two hashes differ, or if a node that is up does not answer.

    Examples:

        holdfast cluster verify
    """
    with notes.status("comparing"):
        found = node_at(url, key).call("POST", "/cluster/verify")
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        for name, one in sorted(found["hashes"].items()):
            out.print(f"{escape(name)}  {one or 'no answer'}")
        out.print("all nodes are equal" if found["equal"] else "[red]the nodes are not equal[/red]")
    raise typer.Exit(0 if found["equal"] else WRONG)


@app.command()
def init(
    config: Config = None,
    data: Data = None,
    cluster: Cluster = None,
    node: NodeName = None,
    assignments: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """
    Start a cluster from the data of a single broker: its retained messages and sessions.

    Takes a data folder that no broker is using, uploads its state for the other nodes, and makes the folder that of the
    first node. Nodes that start with an empty folder then begin with the same state. The command refuses to run if the
    log already has messages, because then there is a cluster. The history stays with the first node.

    Examples:

        holdfast cluster init --data /var/lib/holdfast --cluster nats://h1:4222,nats://h2:4222,nats://h3:4222 --node a

        holdfast serve --data /var/lib/holdfast --cluster nats://h1:4222,nats://h2:4222,nats://h3:4222 --node a
    """
    from holdfast.config import load

    loaded = load(config, (), data, cluster_assignments(assignments, cluster, node))
    if not loaded.settings.cluster.url or not loaded.settings.cluster.node:
        raise UsageError("expected --cluster URLS and --node NAME: the log servers, and the name of the first node")
    root = loaded.settings.data
    if not (root / "state").is_dir():
        raise UsageError(
            f"{root} is not a data folder, expected one that a broker has used: without one, start the nodes with "
            "empty folders"
        )
    about = asyncio.run(begin(loaded.settings))
    done = {"data": str(root), "node": loaded.settings.cluster.node, "offset": int(about["offset"])}
    tell(
        done,
        as_json,
        f"the cluster {loaded.settings.cluster.name} begins at offset {about['offset']} of {root}: start node "
        f"{loaded.settings.cluster.node} there, and the others with empty folders",
    )


async def begin(settings: "Settings") -> dict[str, str]:
    from holdfast.cluster.connection import Connection
    from holdfast.from_settings import log_servers, node_options
    from holdfast.node.joining import begin_cluster
    from holdfast.node.place import drop_unused_place
    from holdfast.server import open_offline

    options = node_options(settings)
    connection = Connection(log_servers(settings), asyncio.get_running_loop())
    try:
        async with asyncio.timeout(CONNECT_S):
            await connection.open()
        drop_unused_place(settings.data)
        async with open_offline(settings.data):
            pass  # what the journal has beyond state and history is there afterwards; whoever was connected has left
        with notes.status("storing the state") as shown:

            def on_progress(done: int, size: int) -> None:
                shown.update(f"storing the state: {done * 100 // max(size, 1)} %")

            return await begin_cluster(settings.data, connection, options, on_progress)
    except TimeoutError:
        raise UsageError(
            f"no log server answered in {CONNECT_S:g} s, expected one at {connection.options.servers}"
        ) from None
    finally:
        await connection.close()
