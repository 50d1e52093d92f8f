"""The services that operations work with, made once for each server and found through the application."""

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request

from holdfast.api.auth import ApiAuthenticator
from holdfast.api.banned import AddressBans, BanList
from holdfast.api.bulk_delete import BulkDelete
from holdfast.api.cursors import SealedCursors
from holdfast.api.metrics_history import MetricsHistory
from holdfast.api.pages import CursorPages
from holdfast.api.problem import Problem
from holdfast.api.resources import Resources
from holdfast.api.status import ServerStatus
from holdfast.api.tree import TopicTree
from holdfast.service.caller import Caller
from holdfast.service.history import HistoryService
from holdfast.service.hygiene import HygieneService
from holdfast.service.live import LiveSource
from holdfast.service.requests import Publication
from holdfast.service.retained import RetainedService
from holdfast.service.source import BrokerHandle
from holdfast.service.states import StateTopics


@dataclass
class Services:
    handle: BrokerHandle
    status: ServerStatus
    authenticator: ApiAuthenticator
    source: LiveSource
    retained: RetainedService
    history: HistoryService
    hygiene: HygieneService
    pages: CursorPages
    cursors: SealedCursors
    tree: TopicTree
    bulk_delete: BulkDelete
    metrics_history: MetricsHistory
    banned: BanList
    resources: Resources
    states: StateTopics

    def admit(self, caller: Caller, asked: list[Publication]) -> None:
        """Count what somebody wants to publish among all that the user sends. Raises for who is over a rate."""
        rates = self.status.broker.user_rates
        size = sum(len(one.topic) + len(one.payload) for one in asked)
        if rates.is_limited and not rates.admit(caller.name, len(asked), size, self.handle.now_ms() / 1000):
            raise Problem(429, f"user {caller.name!r} publishes too fast, try again in a second")


def make_services(status: ServerStatus, authenticator: ApiAuthenticator) -> Services:
    source = LiveSource(
        status.handle,
        journal=status.journal,
        history=status.history,
        erasures=status.erasures,
        reached=status.reached,
        refusal=status.refusal,
    )
    states = source.states = StateTopics(status.handle, status.heard)
    history = HistoryService(source)
    retained = RetainedService(source, history, status.broker.settings.max_packet_size)
    return Services(
        status.handle,
        status,
        authenticator,
        source,
        retained,
        history,
        HygieneService(source),
        CursorPages(source),
        SealedCursors(),
        TopicTree(source),
        BulkDelete(retained),
        MetricsHistory(status),
        BanList(status.handle, cast(AddressBans, authenticator.bans)),
        Resources(status),
        states,
    )


def _services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


def _caller(request: Request) -> Caller:
    return cast(Caller, request.state.caller)


ServicesDep = Annotated[Services, Depends(_services)]
CallerDep = Annotated[Caller, Depends(_caller)]
