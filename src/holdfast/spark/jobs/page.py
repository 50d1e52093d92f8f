"""The report as one HTML file: `report.html`, filled in. What is filled in is escaped, whoever has published it."""

from datetime import datetime
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from holdfast.spark.jobs.charts import charts, size
from holdfast.spark.jobs.report import ReportData, findings

TEMPLATE = "report.html"
HYGIENE = ("ghost", "discovery", "command", "subtree", "expiring")


def build_page(data: ReportData) -> str:
    pages = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {"number": "{:,}".format, "size": size, "time": _time}
    page: str = pages.get_template(TEMPLATE).render(
        data=data,
        findings=findings(data),
        charts=charts(data),
        lists=_lists(data),
        plotlyjs=Markup(get_plotlyjs()),
    )
    return page


def _lists(data: ReportData) -> dict[str, list[tuple[str, ...]]]:
    """The cells of each table of the page, by the section they belong to."""
    found: dict[str, list[tuple[str, ...]]] = {kind: [] for kind in HYGIENE}
    for row in data.hygiene:
        found[row["kind"]].append((row["topic"], f"{row['messages']:,}", size(row["bytes"]), row["detail"] or ""))
    found["quiet"] = [(topic, _time(seen), _pause(gap)) for topic, seen, gap in data.quiet]
    return found


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M")


def _pause(seconds: float) -> str:
    for length, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} seconds"
