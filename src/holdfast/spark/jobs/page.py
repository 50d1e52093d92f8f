"""The report as one HTML file: charts, words for people who do not know MQTT, nothing from another host.

Topics and payloads come from whoever may publish, so everything is escaped: in markup by `html.escape`, in chart labels
too, because the chart library reads a little markup there.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import Any

import plotly.graph_objects as go  # type: ignore[import-untyped]
from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from holdfast.spark.jobs.page_template import PAGE, STYLE, THEME
from holdfast.spark.jobs.report import KINDS, ReportData

COLOURS = {"live": "#4c9be8", "set": "#2fb37c", "cleared": "#e0a030", "refused": "#e05561"}
REASONS = {
    "size": "message too large",
    "count": "too many remembered topics",
    "budget": "storage budget used up",
    "policy": "forbidden by a policy",
}
HYGIENE = {
    "ghost": (
        "Left behind",
        "Nobody has written these for a long time, and their writer is gone. Usually safe to delete.",
    ),
    "discovery": ("Announced but silent", "A device announced itself, but the value it points to does not exist."),
    "command": (
        "Remembered commands",
        "A command that is remembered is carried out again whenever the device reconnects.",
    ),
    "subtree": ("Largest groups", "Which parts of the topic tree hold the most remembered data."),
    "expiring": ("About to disappear", "These values run out soon because their sender said so."),
}
SHOWN_ROWS = 30


def build_page(data: ReportData) -> str:
    sections = [
        _section("What happened when", TRAFFIC_TEXT, _traffic(data)),
        _section("Who is busiest", "Topics that received the most messages.", _bars(data.busiest, "messages")),
        _section("Who takes the most room", "Topics that received the most bytes.", _bars(data.biggest, "bytes")),
        _section("How fresh the remembered values are", STALE_TEXT, _columns(data.staleness, "topics", "#4c9be8")),
        _section("How often values change", CHURN_TEXT, _columns(data.churn, "topics", "#2fb37c")),
        _section("What will disappear by itself", _expiry_text(data), _columns(data.expiry, "topics", "#e0a030")),
        _section("What was refused, and why", REFUSED_TEXT, _refusals(data)),
        _section("Which device was active when", DEVICE_TEXT, _heat_map(data)),
        _section(
            "How devices connect", "Messages by protocol version.", _columns(data.protocols, "messages", "#8e7cc3")
        ),
        _listing("Gone quiet", QUIET_TEXT, ("topic", "last message", "usual pause"), _quiet(data)),
        *_hygiene(data),
    ]
    body = "\n".join(sections)
    parts = {"STYLE": STYLE, "PLOTLY": get_plotlyjs(), "HEAD": _head(data), "BODY": body, "THEME": THEME}
    page = PAGE
    for name, text in parts.items():
        page = page.replace(f"@{name}@", text, 1)
    return page


TRAFFIC_TEXT = (
    "Every message that reached the broker. Most only pass by; some are <em>remembered</em> (“retained”): the newest "
    "one is kept and handed to everyone who asks later."
)
STALE_TEXT = (
    "How long ago each remembered value was written. Old values may be fine, or left behind by something that is gone."
)
CHURN_TEXT = "How many times each remembered value has been replaced."
REFUSED_TEXT = (
    "Values the broker did not remember because a limit or a rule said no. They were still delivered where allowed."
)
DEVICE_TEXT = "One row a device, one column an hour (UTC); brighter means more messages, dark means silence."
QUIET_TEXT = "These topics used to speak regularly and have not for ten times their usual pause."


def _expiry_text(data: ReportData) -> str:
    return f"Remembered values with an expiry date, by when it comes. {data.never_expire:,} others never expire."


def _head(data: ReportData) -> str:
    cards = [
        (f"{data.messages:,}", "messages"),
        (f"{data.topics:,}", "topics"),
        (f"{data.retained:,}", "values remembered now"),
        (_size(data.retained_bytes), "remembered data"),
        (f"{sum(number for _, number in data.refusals):,}", "refused"),
    ]
    span = f"{_time(data.first)} to {_time(data.last)}" if data.first and data.last else "no messages yet"
    tiles = "".join(f"<div class='card'><b>{value}</b><span>{name}</span></div>" for value, name in cards)
    return (
        f"<p class='lead'>Messages from {span} (UTC). Made {_time(data.made_at)}, history up to offset "
        f"{data.offset:,}.</p><div class='cards'>{tiles}</div>"
    )


def _section(title: str, text: str, figure: go.Figure | None) -> str:
    if figure is None:
        return f"<section><h2>{title}</h2><p>{text}</p><p class='none'>Nothing to show.</p></section>"
    return f"<section><h2>{title}</h2><p>{text}</p>{_chart(figure)}</section>"


def _chart(figure: go.Figure) -> str:
    figure.update_layout(
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13},
        legend={"orientation": "h", "y": -0.15},
        template="none",
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    # `<` cannot end the script element this stands in
    text = json.dumps(json.loads(figure.to_json()), separators=(",", ":")).replace("<", "\\u003c")
    return f"<div class='chart' role='img'></div><script type='application/json' class='figure'>{text}</script>"


def _traffic(data: ReportData) -> go.Figure | None:
    if not data.traffic:
        return None
    figure = go.Figure()
    for kind, name in KINDS.items():
        points = data.traffic.get(kind, [])
        if points:
            figure.add_bar(
                x=[at.isoformat() for at, _ in points],
                y=[number for _, number in points],
                name=name,
                marker_color=COLOURS[kind],
            )
    figure.update_layout(barmode="stack", height=360, bargap=0.05, yaxis_title=f"messages each {data.period}")
    return figure


def _bars(rows: list[tuple[str, int]], unit: str) -> go.Figure | None:
    if not rows:
        return None
    names = [escape(_short(name)) for name, _ in rows][::-1]
    figure = go.Figure(
        go.Bar(
            x=[number for _, number in rows][::-1],
            y=list(range(len(rows))),
            orientation="h",
            marker_color="#4c9be8",
            hovertext=[escape(name) for name, _ in rows][::-1],
        )
    )
    figure.update_yaxes(tickvals=list(range(len(rows))), ticktext=names)
    figure.update_layout(height=80 + 24 * len(rows), xaxis_title=unit)
    return figure


def _columns(rows: list[tuple[str, int]], unit: str, colour: str) -> go.Figure | None:
    if not any(number for _, number in rows):
        return None
    figure = go.Figure(
        go.Bar(x=[escape(name) for name, _ in rows], y=[number for _, number in rows], marker_color=colour)
    )
    figure.update_layout(height=300, yaxis_title=unit)
    return figure


def _refusals(data: ReportData) -> go.Figure | None:
    return _columns([(REASONS.get(name, name), number) for name, number in data.refusals], "messages", "#e05561")


def _heat_map(data: ReportData) -> go.Figure | None:
    if not data.devices:
        return None
    figure = go.Figure(
        go.Heatmap(
            x=[hour.isoformat() for hour in data.device_hours],
            y=list(range(len(data.devices))),
            z=[counts for _, counts in data.devices],
            colorscale="Viridis",
            hoverongaps=False,
        )
    )
    figure.update_yaxes(
        tickvals=list(range(len(data.devices))),
        ticktext=[escape(_short(name)) for name, _ in data.devices],
        autorange="reversed",
    )
    figure.update_layout(height=120 + 18 * len(data.devices))
    return figure


def _quiet(data: ReportData) -> list[tuple[str, ...]]:
    return [(topic, _time(seen), _pause(gap)) for topic, seen, gap in data.quiet]


def _hygiene(data: ReportData) -> list[str]:
    found = []
    for kind, (title, text) in HYGIENE.items():
        rows = [row for row in data.hygiene if row["kind"] == kind]
        shown = [(row["topic"], f"{row['messages']:,}", _size(row["bytes"]), row["detail"] or "") for row in rows]
        found.append(_listing(title, text, ("topic", "values", "size", ""), shown))
    return found


def _listing(title: str, text: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    if not rows:
        return f"<section><h2>{title}</h2><p>{text}</p><p class='none'>None found.</p></section>"
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows[:SHOWN_ROWS]
    )
    more = f"<p class='none'>… and {len(rows) - SHOWN_ROWS:,} more.</p>" if len(rows) > SHOWN_ROWS else ""
    return (
        f"<section><h2>{title} <small>{len(rows):,}</small></h2><p>{text}</p>"
        f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}</section>"
    )


def _short(name: str, width: int = 44) -> str:
    return name if len(name) <= width else name[: width // 2] + "…" + name[-width // 2 + 1 :]


def _size(number: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if number < 1000:
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def _time(moment: datetime | None) -> str:
    return moment.strftime("%Y-%m-%d %H:%M") if moment else "never"


def _pause(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds"


def describe(data: ReportData) -> dict[str, Any]:
    """The numbers of the page for other programs."""
    return {
        "offset": data.offset,
        "messages": data.messages,
        "bytes": data.bytes,
        "topics": data.topics,
        "retained": data.retained,
        "retained_bytes": data.retained_bytes,
        "refused": dict(data.refusals),
        "protocols": dict(data.protocols),
        "busiest": dict(data.busiest),
        "first": data.first.isoformat() if data.first else None,
        "last": data.last.isoformat() if data.last else None,
    }
