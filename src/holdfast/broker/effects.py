"""What a batch asks of the world: collected while packets are handled, carried out once at the end by the caller."""

from typing import final

from holdfast.broker.connection import Connection


@final
class Effects:
    """`touched` have bytes to write, `closing` are to be closed after that; `notes` are lines of diagnostics."""

    def __init__(self) -> None:
        self.touched: list[Connection] = []
        self.closing: list[Connection] = []
        self.notes: list[tuple[Connection, str]] = []
