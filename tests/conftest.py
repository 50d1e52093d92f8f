"""Fixtures and hooks for every room of the suite; each is defined beside what it is about."""

import seeds as seeds  # the settings of hypothesis, before any test is read
from broker_process import broker, connect, holdfast_only, open_client, server, start_broker, unique
from chromium import browser
from login_service import service
from schedule import pytest_configure, pytest_xdist_make_scheduler
from stage import stage, stage_builder, staged
from turns import pytest_collection_modifyitems, pytest_runtest_setup, pytest_terminal_summary
from v5_client import connect5, open5

__all__ = [
    "broker",
    "browser",
    "connect",
    "connect5",
    "holdfast_only",
    "open5",
    "open_client",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_runtest_setup",
    "pytest_terminal_summary",
    "pytest_xdist_make_scheduler",
    "server",
    "service",
    "stage",
    "stage_builder",
    "staged",
    "start_broker",
    "unique",
]
