"""Fixtures for every room of the suite; each is defined beside what it starts."""

from broker_process import broker, connect, holdfast_only, open_client, server, start_broker, unique
from chromium import browser
from login_service import service
from schedule import pytest_xdist_make_scheduler
from stage import stage, stage_builder, staged
from v5_client import connect5, open5

__all__ = [
    "broker",
    "browser",
    "connect",
    "connect5",
    "holdfast_only",
    "open5",
    "open_client",
    "pytest_xdist_make_scheduler",
    "server",
    "service",
    "stage",
    "stage_builder",
    "staged",
    "start_broker",
    "unique",
]
