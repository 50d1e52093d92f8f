"""The charts of the report, as HTML that plotly writes itself.

Topics come from everybody who may publish, and plotly reads a little markup in its labels: names go in escaped. Colours
of text and lines are left to the page's style sheet, which knows light and dark.
"""

from html import escape
from textwrap import wrap

import plotly.graph_objects as go  # type: ignore[import-untyped]
import plotly.io as pio  # type: ignore[import-untyped]
from markupsafe import Markup

from holdfast.spark.jobs.report import KINDS, REASONS, ReportData

BLUE, GREEN, AMBER, RED, VIOLET = "#4c8df5", "#2fb37c", "#e0a030", "#e05561", "#8e7cc3"
COLOURS = {"live": BLUE, "set": GREEN, "cleared": AMBER, "refused": RED}
BARS = 12
# So many bars leave no whole pixel for the gaps between them.
CROWDED = 100


def charts(data: ReportData) -> dict[str, Markup]:
    """The charts that have something to show, by the section they belong to."""
    figures = {
        "traffic": _traffic(data),
        "busiest": _bars([(name, number, f"{number:,}") for name, number in data.busiest], BLUE),
        "biggest": _bars([(name, number, size(number)) for name, number in data.biggest], VIOLET),
        "fresh": _columns(data.staleness, BLUE),
        "churn": _columns(data.churn, GREEN),
        "expiry": _columns(data.expiry, AMBER),
        "refused": _columns([(REASONS.get(name, name), number) for name, number in data.refusals], RED),
        "devices": _heat_map(data),
        "protocols": _columns(data.protocols, VIOLET),
    }
    return {name: _html(figure, name) for name, figure in figures.items() if figure is not None}


def _html(figure: go.Figure, name: str) -> Markup:
    figure.update_layout(
        margin={"l": 10, "r": 10, "b": 10, "t": figure.layout.margin.t or 10},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13},
        legend={"orientation": "h", "y": -0.15},
        template="none",
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    config = {"displaylogo": False, "displayModeBar": False}
    return Markup(pio.to_html(figure, config=config, include_plotlyjs=False, full_html=False, div_id=f"chart-{name}"))


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
    crowded = max(map(len, data.traffic.values())) > CROWDED
    figure.update_layout(
        barmode="stack",
        height=360,
        bargap=0 if crowded else 0.05,
        hovermode="x unified",
        yaxis_title=f"messages each {data.period}",
    )
    return figure


def _bars(rows: list[tuple[str, int, str]], colour: str) -> go.Figure | None:
    """Names, numbers, and how these are said. The name stands above its bar: topics are long, and a phone is narrow."""
    if not rows:
        return None
    rows = rows[:BARS][::-1]
    figure = go.Figure(
        go.Bar(
            x=[number for _, number, _ in rows],
            y=list(range(len(rows))),
            orientation="h",
            width=0.36,
            offset=-0.42,
            marker_color=colour,
            customdata=[f"{escape(name)}<br>{said}" for name, _, said in rows],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    for place, (name, _, said) in enumerate(rows):
        figure.add_annotation(
            x=0.0,
            y=place + 0.14,
            text=f"<b>{said}</b>  {escape(short(name, 36))}",
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
    places = list(range(len(rows)))
    figure = go.Figure(
        go.Bar(
            x=places,
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
    figure.update_xaxes(showgrid=False, zeroline=False, tickangle=0, tickvals=places, ticktext=labels)
    figure.update_layout(height=290, bargap=0.3, margin={"t": 30})
    return figure


def _heat_map(data: ReportData) -> go.Figure | None:
    if not data.devices:
        return None
    places = list(range(len(data.devices)))
    figure = go.Figure(
        go.Heatmap(
            x=[hour.isoformat() for hour in data.device_hours],
            y=places,
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
    labels = [escape(short(name)) for name, _ in data.devices]
    figure.update_yaxes(tickvals=places, ticktext=labels, autorange="reversed", showgrid=False, zeroline=False)
    figure.update_xaxes(showgrid=False)
    figure.update_layout(height=120 + 18 * len(data.devices))
    return figure


def short(name: str, width: int = 44) -> str:
    return name if len(name) <= width else name[: width // 2] + "…" + name[-width // 2 + 1 :]


def size(number: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if number < 1000:
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"
