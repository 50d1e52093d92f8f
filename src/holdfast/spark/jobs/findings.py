"""What a report says first: a few sentences, the most telling ones, in words for people who do not know MQTT."""

from datetime import timedelta
from typing import NamedTuple

from holdfast.spark.jobs.report import ReportData

GOOD, LOOK, PLAIN = "good", "look", "plain"
REASONS = {
    "size": "message too large",
    "count": "too many remembered topics",
    "budget": "storage budget used up",
    "policy": "forbidden by a policy",
}


class Finding(NamedTuple):
    """One sentence; `mood` says whether it is good to know, worth a look, or neither. `anchor` is where to read on."""

    mood: str
    text: str
    anchor: str


def findings(data: ReportData) -> list[Finding]:
    if not data.messages:
        return [Finding(PLAIN, "No messages have been recorded yet.", "traffic")]
    return [_rate(data), _refused(data), _quiet(data), *_hygiene(data), *_soon(data), *_share(data)]


def _rate(data: ReportData) -> Finding:
    assert data.first is not None
    assert data.last is not None
    minutes = max(1.0, (data.last - data.first) / timedelta(minutes=1) + 1)
    rate = data.messages / minutes
    pace = f"{rate:,.0f} a minute" if rate >= 2 else f"{rate * 60:,.0f} an hour"
    return Finding(
        PLAIN,
        f"{data.messages:,} messages arrived on {data.topics:,} topics, {pace} on average; "
        f"{data.retained:,} values are remembered now.",
        "traffic",
    )


def _refused(data: ReportData) -> Finding:
    total = sum(number for _, number in data.refusals)
    if not total:
        return Finding(
            GOOD, "Nothing was refused: no limit or rule has stopped a value from being remembered.", "refused"
        )
    why, most = max(data.refusals, key=lambda pair: pair[1])
    share = f"{100 * total / data.messages:.1f} %" if total * 1000 >= data.messages else "less than 0.1 %"
    return Finding(
        LOOK,
        f"{total:,} values were not remembered ({share} of all messages), {most:,} of them because: "
        f"{REASONS.get(why, why)}.",
        "refused",
    )


def _quiet(data: ReportData) -> Finding:
    if not data.quiet:
        return Finding(GOOD, "Every topic that speaks regularly is still speaking.", "quiet")
    many = "at least " if data.quiet_listed else ""
    number = len(data.quiet)
    said = "topic that used to speak regularly has" if number == 1 else "topics that used to speak regularly have"
    return Finding(LOOK, f"{many.capitalize()}{number:,} {said} gone quiet.", "quiet")


def _hygiene(data: ReportData) -> list[Finding]:
    counts = {kind: sum(row["kind"] == kind for row in data.hygiene) for kind in ("ghost", "command", "discovery")}
    found = []
    if counts["ghost"]:
        found.append(
            Finding(LOOK, f"{counts['ghost']:,} remembered values look left behind by writers that are gone.", "ghost")
        )
    if counts["command"]:
        found.append(
            Finding(
                LOOK,
                f"{counts['command']:,} remembered messages look like commands: they run again at each reconnect.",
                "command",
            )
        )
    if counts["discovery"]:
        found.append(Finding(LOOK, f"{counts['discovery']:,} announced devices have no value to show.", "discovery"))
    return found or [Finding(GOOD, "No leftovers and no remembered commands were found.", "ghost")]


def _soon(data: ReportData) -> list[Finding]:
    soon = sum(number for _, number in data.expiry[:2])
    if not soon:
        return []
    return [Finding(PLAIN, f"{soon:,} remembered values will disappear by themselves within a day.", "expiry")]


def _share(data: ReportData) -> list[Finding]:
    if not data.busiest:
        return []
    topic, most = data.busiest[0]
    share = 100 * most / data.messages
    if share < 10 or data.topics < 5:
        return []
    return [Finding(LOOK, f"One topic, {topic}, sends {share:.0f} % of all messages.", "busiest")]
