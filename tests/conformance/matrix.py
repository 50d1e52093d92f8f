"""The retained-message matrix: every rule about retained messages that has to hold, and in which versions.

Sections A to Q follow the standards and the broker limits; R, S and T are what Holdfast adds (snapshots, delta,
policies and budgets). A test says which rows it proves with `@pytest.mark.matrix("A1", ...)`;
`test_retained_coverage.py` fails when a row has neither a test for each of its versions nor a reason in `later`.
"""

from dataclasses import dataclass

V311 = "3.1.1"
V5 = "5.0"
BOTH = (V311, V5)
ONLY_5 = (V5,)
ONLY_311 = (V311,)


@dataclass(frozen=True)
class Row:
    id: str
    rule: str
    versions: tuple[str, ...]
    later: str = ""  # why there is no test for it yet


_STORING = (
    Row("A1", "a publish with RETAIN 1 is kept together with its QoS", BOTH),
    Row("A2", "the newest retained publish is the only one of its topic", BOTH),
    Row("A3", "a publish with RETAIN 0 leaves the store as it is, empty or not", BOTH),
    Row("A4", "the end of the publisher's session, however it comes, keeps the message", BOTH),
    Row("A5", "a QoS 0 retained publish replaces the older message and is itself kept", BOTH),
    Row("A6", "a repeated QoS 2 publish stores and delivers once", BOTH),
    Row("A7", "a publish that access rules refuse stores nothing", BOTH),
    Row("A8", "a retained publish still reaches live subscribers", BOTH),
    Row("A9", "payload bytes come back exactly as they went in", BOTH),
)

_DELETING = (
    Row("B1", "an empty retained publish removes the message", BOTH),
    Row("B2", "the empty publish still reaches live subscribers", BOTH),
    Row("B3", "Retain As Published keeps RETAIN 1 on the forwarded empty publish", ONLY_5),
    Row("B4", "an empty message is never kept", BOTH),
    Row("B5", "removing what is not there succeeds", BOTH),
    Row("B6", "removal touches exactly the named topic", BOTH),
    Row("B7", "properties do not make an empty payload less empty", ONLY_5),
    Row("B8", "copies already queued for a client are not recalled", BOTH),
)

_SUBSCRIBING = (
    Row("C1", "a new subscription gets the last retained message of each matching topic", BOTH),
    Row("C2", "those copies carry RETAIN 1", BOTH),
    Row("C3", "they are first sends: DUP 0", BOTH),
    Row("C4", "SUBACK comes before them", BOTH),
    Row("C5", "each filter of one SUBSCRIBE sends its own copies", BOTH),
    Row("C6", "subscribing again in 3.1.1 sends them again", ONLY_311),
    Row("C7", "a refused filter sends nothing", BOTH),
    Row("C8", "a copy carries the stored topic name, not the filter", BOTH),
    Row("C9", "with nothing retained the subscription simply works", BOTH),
    Row("C10", "after UNSUBSCRIBE a subscription is new again", BOTH),
    Row("C11", "UNSUBSCRIBE stops unsent copies and lets started ones finish", BOTH),
)

_LIVE_FLAG = (
    Row("D1", "a live copy carries RETAIN 0", BOTH),
    Row("D2", "Retain As Published passes the flag on as it was", ONLY_5),
    Row("D3", "a copy queued for an absent client follows the live rule", BOTH),
    Row("D4", "resuming a session sends no retained messages", BOTH),
    Row("D5", "one copy for overlapping filters keeps the flag if any of them asks for it", BOTH),
    Row("D6", "a redelivered copy keeps RETAIN and packet id and gains DUP", BOTH),
)

_RETAIN_HANDLING = (
    Row("E1", "Retain Handling 0 sends at every subscribe", ONLY_5),
    Row("E2", "Retain Handling 1 sends only for a subscription that was not there", ONLY_5),
    Row("E3", "Retain Handling 2 never sends", ONLY_5),
    Row("E4", "Retain Handling 3 is a protocol error", ONLY_5),
    Row("E5", "a subscription exists when its filter does, whatever its options", ONLY_5),
    Row("E6", "a resumed session's subscriptions exist, a new session's do not", ONLY_5),
    Row("E7", "different filter texts are different subscriptions", ONLY_5),
    Row("E8", "replacing a subscription loses no live message", BOTH),
)

_SHARED = (
    Row("F1", "a shared subscription is sent no retained messages", BOTH),
    Row("F2", "a shared subscription gets live messages, flag by Retain As Published", BOTH),
    Row("F3", "a shared and a plain subscription are two subscriptions", BOTH),
    Row("F4", "No Local on a shared subscription is a protocol error", ONLY_5),
    Row("F5", "a malformed share name is refused", BOTH),
)

_SUBSCRIPTION_ID = (
    Row("G1", "a copy carries the identifier of the subscription that asked for it", ONLY_5),
    Row("G2", "and no identifier of older subscriptions that match too", ONLY_5),
    Row("G3", "subscribing again with another identifier uses the new one", ONLY_5),
    Row("G4", "no identifier given, none sent", ONLY_5),
    Row("G5", "a publish with an identifier is a protocol error and stores nothing", ONLY_5),
)

_FLOW = (
    Row("H1", "a copy goes out at the lower of stored and granted QoS", BOTH),
    Row("H2", "the granted QoS may be lower than asked and then caps the copy", BOTH),
    Row("H3", "a flood of copies stays within the Receive Maximum", ONLY_5),
    Row("H4", "a full window holds back nothing but PUBLISH", ONLY_5),
    Row("H5", "each copy in flight has a packet id of its own", BOTH),
    Row("H6", "a copy the client refuses is not repeated and stays stored", ONLY_5),
)

_TOPICS = (
    Row("I1", "+ is one level, # is the rest and the parent", BOTH),
    Row("I2", "filters that begin with a wildcard skip $ topics", BOTH),
    Row("I3", "topics are compared byte by byte", BOTH),
    Row("I4", "a publish to a topic with a wildcard is refused and stores nothing", BOTH),
    Row("I5", "the longest topic is kept and found, the empty one refused", BOTH),
    Row("I6", "$SYS values are retained messages seen only by filters that name $SYS", BOTH),
)

_EXPIRY = (
    Row("J1", "a message past its interval is gone", ONLY_5),
    Row("J2", "a copy carries what is left of the interval", ONLY_5),
    Row("J3", "without an interval and a default it stays, and shows none", ONLY_5),
    Row("J4", "3.1.1 subscribers get no expired message either", ONLY_311),
    Row("J5", "a 3.1.1 publish expires by the broker's default alone", ONLY_311),
    Row("J6", "the publisher's interval wins over the default, shorter or longer", ONLY_5),
    Row("J7", "a message expiring by the default shows no interval", ONLY_5),
    Row("J8", "interval 0 replaces the old message and is gone at once", ONLY_5),
    Row("J9", "a replacement starts the clock again, a plain publish does not", ONLY_5),
    Row("J10", "expiry sends nothing to anyone", ONLY_5),
    Row("J11", "a copy that was started is finished", ONLY_5),
    Row("J12", "queued copies expire by the same absolute time", ONLY_5),
    Row("J13", "a restart does not lengthen a life", BOTH),
    Row("J14", "expired messages do not count against the limit", ONLY_5),
)

_PROPERTIES = (
    Row("K1", "Payload Format Indicator comes back", ONLY_5),
    Row("K2", "Content Type comes back", ONLY_5),
    Row("K3", "Response Topic comes back", ONLY_5),
    Row("K4", "Correlation Data comes back", ONLY_5),
    Row("K5", "User Properties come back in order with duplicates", ONLY_5),
    Row("K6", "an alias is resolved before storing", ONLY_5),
    Row("K7", "the message outlives the connection's aliases", ONLY_5),
    Row("K8", "an alias goes out only within the receiver's maximum", ONLY_5),
    Row("K9", "a 3.1.1 reader sees no properties and takes none away", BOTH),
    Row("K10", "a replacement without properties has none", ONLY_5),
)

_SIZE = (
    Row("L1", "a copy above the receiver's maximum is skipped for that receiver only", ONLY_5),
    Row("L2", "a copy of exactly the maximum is sent", ONLY_5),
    Row("L3", "a skipped copy takes no window slot", ONLY_5),
    Row("L4", "by default the broker announces that it retains", ONLY_5),
    Row("L5", "switched off: announced, and a retained will is refused", ONLY_5),
    Row("L6", "switched off: a retained publish is refused with 0x9A", ONLY_5),
    Row("L7", "switched off: from 3.1.1 it is a plain publish", ONLY_311),
    Row("L8", "switched off: subscription options stay legal", ONLY_5),
)

_LIMITS = (
    Row("M1", "at the message limit a new topic is delivered, acknowledged and not kept", BOTH),
    Row("M2", "at the limit replacing works, and deleting or expiring makes room", BOTH),
    Row("M3", "a payload above the limit is not kept, one of the limit is", BOTH),
    Row("M4", "an oversized publish leaves the older message, or removes it in strict mode", BOTH),
    Row("M5", "the default life applies, and the publisher's own wins", BOTH),
    Row("M6", "storage types differ in what survives a kill", BOTH),
    Row("M7", "what is not kept is counted; strict mode answers 5.0 with 0x97", BOTH),
    Row("M8", "not being kept does not change the flag of live copies", ONLY_5),
    Row("M9", "lowering the limit deletes nothing", BOTH),
)

_WILLS = (
    Row("N1", "a retained will is kept", BOTH),
    Row("N2", "a plain will leaves the store alone", BOTH),
    Row("N3", "Will Retain without a will is malformed", BOTH),
    Row("N4", "an empty retained will deletes", BOTH),
    Row("N5", "a normal disconnect changes nothing", BOTH),
    Row("N6", "a delayed will waits, and a reconnect in time cancels it", ONLY_5),
    Row("N7", "a will's interval counts from its publication", ONLY_5),
    Row("N8", "birth and death messages alternate correctly", BOTH),
)

_NO_LOCAL = (
    Row("O1", "No Local: no live copy to the publisher, but the message is kept", ONLY_5),
    Row("O2", "No Local: a client's own retained messages are left out of its snapshot", ONLY_5),
    Row("O3", "without No Local the publisher gets its own message", BOTH),
    Row("O4", "No Local goes by client id, also after a reconnect", ONLY_5),
    Row("O5", "a will counts as published by its client", ONLY_5),
)

_CROSSING = tuple(
    Row(f"P{number}", rule, BOTH)
    for number, rule in enumerate(
        (
            "SN 2.0 exact filter: alias in SUBACK, then the copy by that alias",
            "SN 2.0 wildcard: the copy by full name or after REGISTER",
            "SN 1.2 wildcard: REGISTER before each copy",
            "predefined and short topics find the message of the real topic",
            "publishes without a connection store, replace and delete",
            "a sleeping client's copies wait for it",
            "a resent SUBSCRIBE sends copies once",
            "every protocol pair gives the same message",
            "a copy too large for SN is skipped for SN alone",
        ),
        start=1,
    )
)

_RACES = (
    Row("Q1", "a publish racing with a subscribe is seen, and never an old value after a new one", BOTH),
    Row("Q2", "replacing never leaves a gap", BOTH),
    Row("Q3", "two publishes of one client to one topic keep their order", BOTH),
    Row("Q4", "an acknowledged publish survives a power cut", BOTH),
    Row("Q5", "a large snapshot starves nobody", BOTH),
)

_SNAPSHOTS = (
    Row("R1", "20 000 messages reach a client that reads slowly, every one", BOTH),
    Row("R2", "a snapshot is complete for any Receive Maximum", ONLY_5),
    Row("R3", "a snapshot is complete however small the queue limits are", BOTH),
    Row("R4", "live and snapshot copies never show an older value after a newer one", BOTH),
    Row("R5", "a topic deleted or expired before its turn is not sent as it was", BOTH),
    Row("R6", "a topic changed before its turn is sent once", BOTH),
    Row("R7", "UNSUBSCRIBE ends a running snapshot", BOTH),
    Row("R8", "a kept session gets the rest of a snapshot on its next connection", BOTH),
    Row("R9", "many snapshots at once advance side by side", BOTH),
    Row("R10", "the end marker follows the last copy and tells filter, count and version", ONLY_5),
    Row("R11", "without asking there is no end marker", BOTH),
    Row("R12", "on request copies carry offset, time and publisher", ONLY_5),
)

_DELTA = (
    Row("S1", "holdfast-since sends only what changed after the offset", ONLY_5),
    Row("S2", "a deletion is sent as an empty message with RETAIN 1", ONLY_5),
    Row("S3", "an offset too far back gives the whole snapshot and says so", ONLY_5),
    Row("S4", "an offset at the present sends nothing but the marker", ONLY_5),
)

_POLICIES = (
    Row("T1", "the first policy whose filter and users match decides", BOTH),
    Row("T2", "drop-flag delivers and keeps nothing", BOTH),
    Row("T3", "refuse keeps and delivers nothing; 5.0 is told why", BOTH),
    Row("T4", "a policy's ttl is its topics' default life", BOTH),
    Row("T5", "a policy's max_messages and max_bytes bound its subtree", BOTH),
    Row("T6", "a policy for some users leaves other users alone", BOTH),
    Row("T7", "the preset for command topics keeps commands out of the store", BOTH),
    Row("T8", "a byte budget bounds the whole store", BOTH),
    Row("T9", "budgets per user bound each user alone", BOTH),
    Row("T10", "everything not kept is counted by reason in $SYS", BOTH),
)

ROWS: tuple[Row, ...] = (
    *_STORING,
    *_DELETING,
    *_SUBSCRIBING,
    *_LIVE_FLAG,
    *_RETAIN_HANDLING,
    *_SHARED,
    *_SUBSCRIPTION_ID,
    *_FLOW,
    *_TOPICS,
    *_EXPIRY,
    *_PROPERTIES,
    *_SIZE,
    *_LIMITS,
    *_WILLS,
    *_NO_LOCAL,
    *_CROSSING,
    *_RACES,
    *_SNAPSHOTS,
    *_DELTA,
    *_POLICIES,
)
