"""A persistent session that receives into a spool, in a thread beside the query that reads it.

Messages are acknowledged after they are in the spool, so the broker keeps what we have not. What it sends again because
an acknowledgement was lost carries DUP and a packet identifier that the ledger knows: that message is here already. An
entry leaves the ledger when a later answer of the broker (to an UNSUBSCRIBE of a filter nobody has) proves that it has
read the acknowledgement.
"""

import threading
import time
from pathlib import Path

import paho.mqtt.client as paho

from holdfast.errors import HoldfastError, ProtocolError
from holdfast.spark.mqtt.connection import BrokerOptions, PahoConnection, row_of
from holdfast_mqtt_stream.spool import Spool, digest

FLUSH_MESSAGES = 4096
FLUSH_SECONDS = 0.05
RECEIVE_MAXIMUM = 4096
BARRIER = "holdfast/spool/barrier"
# Refusals that no waiting will change: bad password, not authorised, banned, identifier not valid, unknown version.
HOPELESS = (0x01, 0x02, 0x04, 0x05, 0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C)


class Receiver:
    def __init__(
        self,
        options: BrokerOptions,
        folder: Path,
        *,
        client_id: str,
        topic_filter: str,
        qos: int,
        clean: bool,
        session_expiry_s: int,
        spool_limit: int,
    ) -> None:
        self.spool = Spool(folder)
        self._options = options
        self._client_id, self._filter, self._qos = client_id, topic_filter, qos
        self._clean, self._expiry, self._limit = clean, session_expiry_s, spool_limit
        self._released = self.spool.start
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._failure: HoldfastError | None = None
        self._pending: list[paho.MQTTMessage] = []
        self._pending_since = 0.0
        self._unproven: dict[int, str] = dict(self.spool.ledger)
        self._barriers: list[tuple[int, dict[int, str]]] = []
        self._thread = threading.Thread(target=self._run, name=f"mqtt-{client_id}", daemon=True)
        self._thread.start()

    @property
    def end(self) -> int:
        return self.spool.end

    def wait_until_ready(self) -> None:
        """Until the first subscription is acknowledged. Raises what the broker said when that cannot be."""
        self._ready.wait(self._options.timeout + 5)
        self.check()
        if not self._ready.is_set():
            raise ProtocolError(f"no answer from the broker at {self._options.address}", 0x88)

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def release(self, offset: int) -> None:
        self._released = offset
        self.spool.release(offset)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(10)
        self.spool.close()

    def _run(self) -> None:
        delay = 0.2
        while not self._stopping.is_set():
            try:
                self._receive()
                delay = 0.2
            except ProtocolError as error:
                # a broker that restarts comes back; one that refuses us by name will not change its mind
                if error.reason in HOPELESS or not self._ready.is_set():
                    self._failure = error
                    self._ready.set()
                    return
                self._stopping.wait(delay)
                delay = min(delay * 2, 10.0)
            except HoldfastError as error:
                self._failure = error
                self._ready.set()
                return

    def _receive(self) -> None:
        connection = PahoConnection(
            self._options,
            client_id=self._client_id,
            clean=self._clean,
            session_expiry_s=self._expiry,
            receive_maximum=RECEIVE_MAXIMUM,
            manual_ack=True,
        )
        # a message that was not flushed before the connection broke was not acknowledged: it comes again
        self._pending, self._barriers = [], []
        connection.on_message = self._arrived
        try:
            if not connection.session_present:
                self._unproven = {}
                # only the first time: subscribing again would have the broker send its retained messages again
                connection.subscribe(self._filter, self._qos, retain_handling=1, as_published=True)
            self._ready.set()
            while not self._stopping.is_set():
                full = self.spool.end - self._released >= self._limit
                if full and not self._pending:
                    # keep the connection alive, take nothing more than the window that is already on its way
                    connection.poll(0.1)
                    continue
                connection.poll(FLUSH_SECONDS)
                self._prove(connection)
                due = self._pending and (
                    len(self._pending) >= FLUSH_MESSAGES or time.monotonic() - self._pending_since >= FLUSH_SECONDS
                )
                if due and not full:
                    self._flush(connection)
            self._flush(connection)
        finally:
            connection.close()

    def _arrived(self, message: paho.MQTTMessage) -> None:
        if not self._pending:
            self._pending_since = time.monotonic()
        self._pending.append(message)

    def _flush(self, connection: PahoConnection) -> None:
        """Into the spool, then acknowledge, then ask for proof that the acknowledgements were read."""
        messages, self._pending = self._pending, []
        if not messages:
            return
        rows = []
        ledger = dict(self._unproven)
        for message in messages:
            if message.qos == 0:
                rows.append(row_of(message, connection.version, 0))
                continue
            mark = digest(message.topic, bytes(message.payload))
            if message.dup and self._unproven.get(message.mid) == mark:
                continue  # already in the spool; only its acknowledgement was lost
            ledger[message.mid] = mark
            rows.append(row_of(message, connection.version, 0))
        if rows:
            self.spool.append(rows, ledger)
        self._unproven = ledger
        for message in messages:
            if message.qos > 0:
                connection.client.ack(message.mid, message.qos)
        _, mid = connection.client.unsubscribe(BARRIER)
        if mid is not None:
            proven = {m.mid: ledger[m.mid] for m in messages if m.qos > 0 and m.mid in ledger}
            self._barriers.append((mid, proven))

    def _prove(self, connection: PahoConnection) -> None:
        while self._barriers and self._barriers[0][0] in connection.unsubscribed:
            mid, proven = self._barriers.pop(0)
            connection.unsubscribed.discard(mid)
            for packet_id, mark in proven.items():
                # the identifier may be in use again by now, for another message
                if self._unproven.get(packet_id) == mark and not self._used_since(packet_id):
                    del self._unproven[packet_id]

    def _used_since(self, packet_id: int) -> bool:
        return any(packet_id in proven for _, proven in self._barriers)
