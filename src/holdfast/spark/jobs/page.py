"""The report as one HTML file: charts, words for people who do not know MQTT, nothing from another host.

Topics and payloads come from everybody who may publish, so everything is escaped: in markup by `html.escape`, in chart
labels too, because the chart library reads a little markup there. In the template, `@NAME@` is where a part goes.
"""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from html import escape
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go  # type: ignore[import-untyped]
from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from holdfast.spark.jobs.report import KINDS, REASONS, ReportData, findings

BLUE, GREEN, AMBER, RED, VIOLET = "#4c8df5", "#2fb37c", "#e0a030", "#e05561", "#8e7cc3"
COLOURS = {"live": BLUE, "set": GREEN, "cleared": AMBER, "refused": RED}
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
SHOWN_ROWS = 50
FIRST_ROWS = 8
BARS = 12
STYLE = """
:root {
  --bg: #f3f5f9; --card: #ffffff; --ink: #18222e; --dim: #5a6878; --line: #dde3ea; --accent: #2f6fe0;
  --good: #1f8a5b; --look: #b06f00; color-scheme: light;
}
:root[data-theme="dark"] {
  --bg: #0f141a; --card: #19212a; --ink: #e8edf3; --dim: #9caab9; --line: #2a3541; --accent: #7fb0ff;
  --good: #4fd19a; --look: #f0b54a; color-scheme: dark;
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 3.4rem; }
body { margin: 0; background: var(--bg); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 0 1rem 3rem; }
header { display: flex; align-items: center; gap: 1rem; flex-wrap: wrap; padding-top: 1.4rem; }
h1 { font-size: clamp(1.5rem, 4vw, 2.1rem); line-height: 1.2; margin: 0; flex: 1; letter-spacing: -.01em; }
h2 { font-size: 1.12rem; margin: 0 0 .2rem; } h2 small { color: var(--dim); font-weight: normal; }
a { color: var(--accent); }
button {
  background: var(--card); color: var(--ink); border: 1px solid var(--line); border-radius: 99px;
  padding: .4rem .9rem; font: inherit; cursor: pointer;
}
p { margin: 0 0 .7rem; } .lead, section p, .none { color: var(--dim); } section p { font-size: .94rem; }
.lead { margin: .4rem 0 1rem; }
nav {
  position: sticky; top: 0; z-index: 9; display: flex; gap: .4rem; overflow-x: auto; padding: .5rem 0;
  background: var(--bg); margin-bottom: .4rem; scrollbar-width: none;
}
nav a {
  white-space: nowrap; text-decoration: none; font-size: .88rem; color: var(--dim); padding: .2rem .7rem;
  border: 1px solid var(--line); border-radius: 99px; background: var(--card);
}
nav a:hover { color: var(--ink); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: .8rem; margin-bottom: .8rem; }
section, .card { background: var(--card); border: 1px solid var(--line); border-radius: 14px; padding: 1rem 1.1rem; }
.card b { display: block; font-size: 1.6rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
.card span { color: var(--dim); font-size: .9rem; }
.grid { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .8rem; }
.grid > * { grid-column: 1 / -1; min-width: 0; } .grid > .half { grid-column: auto; }
@media (max-width: 820px) { .grid > .half { grid-column: 1 / -1; } }
.findings ul { list-style: none; margin: .5rem 0 0; padding: 0; }
.findings li { padding: .28rem 0 .28rem 1.6rem; position: relative; overflow-wrap: anywhere; }
.findings li::before { position: absolute; left: 0; font-weight: 700; content: "\\2022"; color: var(--dim); }
.findings li.good::before { content: "\\2713"; color: var(--good); }
.findings li.look::before { content: "!"; color: var(--look); left: .25rem; }
.findings a { font-size: .85rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--dim); font-weight: 600; } td { overflow-wrap: anywhere; min-width: 5.5rem; }
summary { cursor: pointer; color: var(--accent); padding: .4rem 0; font-size: .9rem; }
dl { margin: .4rem 0 0; } dt { font-weight: 600; } dd { margin: 0 0 .5rem; color: var(--dim); }
@media print { nav, button { display: none; } section { break-inside: avoid; } }
"""

THEME = """
const root = document.documentElement;
const wanted = matchMedia('(prefers-color-scheme: dark)');
const charts = [...document.querySelectorAll('.figure')].map(script => {
  const figure = JSON.parse(script.textContent);
  return { box: script.previousElementSibling, figure };
});
function colours(figure) {
  const style = getComputedStyle(root);
  const of = name => style.getPropertyValue(name).trim();
  const ink = of('--ink'), line = of('--line');
  const found = {
    'font.color': ink, 'xaxis.gridcolor': line, 'yaxis.gridcolor': line,
    'xaxis.linecolor': line, 'yaxis.linecolor': line, 'xaxis.zerolinecolor': line, 'yaxis.zerolinecolor': line,
    'hoverlabel.bgcolor': of('--card'), 'hoverlabel.bordercolor': line, 'hoverlabel.font.color': ink,
  };
  (figure.layout.annotations || []).forEach((_, at) => { found[`annotations[${at}].font.color`] = ink; });
  return found;
}
function show(theme) {
  root.dataset.theme = theme;
  for (const { box, figure } of charts) if (box.data) Plotly.relayout(box, colours(figure));
}
root.dataset.theme = wanted.matches ? 'dark' : 'light';
function draw({ box, figure }) {
  Plotly.newPlot(box, figure.data, figure.layout, { responsive: true, displaylogo: false, displayModeBar: false })
    .then(() => Plotly.relayout(box, colours(figure)));
}
const watch = new IntersectionObserver(entries => {
  for (const entry of entries) if (entry.isIntersecting) {
    watch.unobserve(entry.target);
    draw(charts.find(chart => chart.box === entry.target));
  }
}, { rootMargin: '600px' });
for (const chart of charts) {
  chart.box.style.minHeight = `${chart.figure.layout.height}px`;
  watch.observe(chart.box);
}
addEventListener('beforeprint', () => charts.filter(chart => !chart.box.data).forEach(draw));
wanted.addEventListener('change', event => show(event.matches ? 'dark' : 'light'));
const other = () => root.dataset.theme === 'dark' ? 'light' : 'dark';
document.getElementById('theme').addEventListener('click', () => show(other()));
"""

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Holdfast report</title><style>@STYLE@</style></head>
<body><main><header><h1>What your devices have been saying</h1><button id="theme">light / dark</button></header>
@HEAD@
<nav aria-label="parts of this page">
<a href="#traffic">Traffic</a><a href="#busiest">Busiest</a><a href="#biggest">Biggest</a><a href="#fresh">Freshness</a>
<a href="#churn">Changes</a><a href="#expiry">Expiry</a><a href="#refused">Refused</a><a href="#devices">Devices</a>
<a href="#quiet">Gone quiet</a><a href="#ghost">Clean up</a><a href="#words">Words</a></nav>
<div class="grid">
@BODY@
<section id="words"><h2>Words used here</h2><dl>
<dt>Message</dt><dd>A small piece of data that a device or a program sends, for example a temperature.</dd>
<dt>Topic</dt><dd>The name a message is sent under, like an address: <code>site/3/line/1/press/temperature</code>.</dd>
<dt>Broker</dt><dd>The post office: it receives every message and hands it to everyone who asked for its topic.</dd>
<dt>Remembered (retained)</dt>
<dd>The sender asked the broker to keep the newest message of a topic for whoever comes later.</dd>
<dt>Expiry</dt><dd>The sender said how long a remembered message is worth keeping.</dd>
</dl></section></div></main>
<script>@PLOTLY@</script><script>@THEME@</script></body></html>
"""


def build_page(data: ReportData) -> str:
    half = "half"
    sections = [
        _findings(data),
        _section("traffic", "What happened when", TRAFFIC_TEXT, _traffic(data)),
        _section("busiest", "Who is busiest", BUSY_TEXT, _bars(data.busiest, "messages", BLUE), half),
        _section("biggest", "Who takes the most room", BIG_TEXT, _bars(data.biggest, "bytes", VIOLET), half),
        _section("fresh", "How fresh the remembered values are", STALE_TEXT, _columns(data.staleness, BLUE), half),
        _section("churn", "How often values change", CHURN_TEXT, _columns(data.churn, GREEN), half),
        _section("expiry", "What will disappear by itself", _expiry_text(data), _columns(data.expiry, AMBER), half),
        _section("refused", "What was refused, and why", REFUSED_TEXT, _refusals(data), half),
        _section("devices", "Which device was active when", DEVICE_TEXT, _heat_map(data)),
        _section("protocols", "How devices connect", PROTOCOL_TEXT, _columns(data.protocols, VIOLET), half),
        _listing("quiet", "Gone quiet", QUIET_TEXT, ("topic", "last message", "usual pause"), _quiet(data), half),
        *_hygiene(data),
    ]
    body = "\n".join(sections)
    parts = {"STYLE": STYLE, "PLOTLY": get_plotlyjs(), "HEAD": _head(data), "BODY": body, "THEME": THEME}
    # In one pass: a topic may be called like a place in the template.
    return re.sub(r"@([A-Z]+)@", lambda place: parts[place[1]], PAGE)


BUSY_TEXT = "Topics that received the most messages."
BIG_TEXT = "Topics that received the most data."
PROTOCOL_TEXT = "Messages by the version of the protocol that brought them."
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
DEVICE_TEXT = "One row a device, one column an hour (UTC); stronger colour means more messages, none means silence."
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


def _findings(data: ReportData) -> str:
    items = "".join(
        f"<li class='{finding.severity}'>{escape(finding.text)} <a href='#{finding.anchor}'>more</a></li>"
        for finding in findings(data)
    )
    return f"<section class='findings'><h2>In short</h2><ul>{items}</ul></section>"


def _section(anchor: str, title: str, text: str, figure: go.Figure | None, kind: str = "") -> str:
    shown = "<p class='none'>Nothing to show.</p>" if figure is None else _chart(figure, title)
    return f"<section id='{anchor}' class='{kind}'><h2>{title}</h2><p>{text}</p>{shown}</section>"


def _chart(figure: go.Figure, title: str) -> str:
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
    return (
        f"<div class='chart' role='img' aria-label='{escape(title)}'></div>"
        f"<script type='application/json' class='figure'>{text}</script>"
    )


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
                hovertemplate="%{y:,} %{fullData.name}<extra></extra>",
            )
    figure.update_layout(
        barmode="stack", height=360, bargap=0.05, hovermode="x unified", yaxis_title=f"messages each {data.period}"
    )
    return figure


def _bars(rows: list[tuple[str, int]], unit: str, colour: str) -> go.Figure | None:
    """The name stands above its bar: topics are long, and a phone is narrow."""
    if not rows:
        return None
    rows = rows[:BARS][::-1]
    size = unit == "bytes"
    figure = go.Figure(
        go.Bar(
            x=[number for _, number in rows],
            y=list(range(len(rows))),
            orientation="h",
            width=0.36,
            offset=-0.42,
            marker_color=colour,
            hovertext=[escape(name) for name, _ in rows],
            hovertemplate="%{hovertext}<br>%{x:,} " + unit + "<extra></extra>",
        )
    )
    for place, (name, number) in enumerate(rows):
        said = _size(number) if size else f"{number:,}"
        figure.add_annotation(
            x=0.0,
            y=place + 0.14,
            text=f"<b>{said}</b>  {escape(_short(name, 36))}",
            showarrow=False,
            xanchor="left",
            xref="paper",
            font={"size": 12},
        )
    figure.update_yaxes(visible=False, range=[-0.6, len(rows) - 0.3])
    figure.update_xaxes(visible=False)
    figure.update_layout(height=30 + 38 * len(rows))
    return figure


def _columns(rows: list[tuple[str, int]], colour: str) -> go.Figure | None:
    if not any(number for _, number in rows):
        return None
    figure = go.Figure(
        go.Bar(
            x=list(range(len(rows))),
            y=[number for _, number in rows],
            marker_color=colour,
            customdata=[escape(name) for name, _ in rows],
            text=[f"{number:,}" if number else "" for _, number in rows],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{customdata}: %{y:,}<extra></extra>",
        )
    )
    figure.update_yaxes(visible=False)
    labels = ["<br>".join(escape(line) for line in wrap(name, 11)) for name, _ in rows]
    figure.update_xaxes(showgrid=False, zeroline=False, tickangle=0, tickvals=list(range(len(rows))), ticktext=labels)
    figure.update_layout(height=290, bargap=0.3, margin={"t": 30})
    return figure


def _refusals(data: ReportData) -> go.Figure | None:
    return _columns([(REASONS.get(name, name), number) for name, number in data.refusals], RED)


def _heat_map(data: ReportData) -> go.Figure | None:
    if not data.devices:
        return None
    figure = go.Figure(
        go.Heatmap(
            x=[hour.isoformat() for hour in data.device_hours],
            y=list(range(len(data.devices))),
            # silence stays the colour of the page, in the dark as in the light
            z=[[number or None for number in counts] for _, counts in data.devices],
            text=[[escape(name)] * len(data.device_hours) for name, _ in data.devices],
            colorscale=[[0, "rgba(76,141,245,.22)"], [0.5, BLUE], [1, GREEN]],
            zmin=0,
            xgap=1,
            ygap=1,
            hoverongaps=False,
            hovertemplate="%{text}<br>%{x|%Y-%m-%d %H:%M}: %{z:,} messages<extra></extra>",
            showscale=False,
        )
    )
    figure.update_yaxes(
        tickvals=list(range(len(data.devices))),
        ticktext=[escape(_short(name)) for name, _ in data.devices],
        autorange="reversed",
        showgrid=False,
    )
    figure.update_xaxes(showgrid=False)
    figure.update_layout(height=120 + 18 * len(data.devices))
    return figure


def _quiet(data: ReportData) -> list[tuple[str, ...]]:
    return [(topic, _time(seen), _pause(gap)) for topic, seen, gap in data.quiet]


def _hygiene(data: ReportData) -> list[str]:
    found = []
    for kind, (title, text) in HYGIENE.items():
        rows = [row for row in data.hygiene if row["kind"] == kind]
        shown = [(row["topic"], f"{row['messages']:,}", _size(row["bytes"]), row["detail"] or "") for row in rows]
        found.append(_listing(kind, title, text, ("topic", "values", "size", "what is known"), shown))
    return found


def _listing(
    anchor: str, title: str, text: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], kind: str = ""
) -> str:
    opening = f"<section id='{anchor}' class='{kind}'>"
    if not rows:
        return f"{opening}<h2>{title}</h2><p>{text}</p><p class='none'>None found.</p></section>"
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    lines = ["<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows[:SHOWN_ROWS]]
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines[:FIRST_ROWS])}</tbody></table>"
    if len(lines) > FIRST_ROWS:
        rest = f"<table><tbody>{''.join(lines[FIRST_ROWS:])}</tbody></table>"
        table += f"<details><summary>{len(lines) - FIRST_ROWS} more</summary>{rest}</details>"
    more = f"<p class='none'>… and {len(rows) - SHOWN_ROWS:,} that are not listed here.</p>"
    return (
        f"{opening}<h2>{title} <small>{len(rows):,}</small></h2><p>{text}</p>"
        f"<div class='scroll'>{table}</div>{more if len(rows) > SHOWN_ROWS else ''}</section>"
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
