"""Tells a failure when it happens, with its whole report: the end of the suite is half an hour away."""

import pytest


class Failures:
    """Of all workers: each of them sends its reports to the one that shows them."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        shown = self.config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and shown is not None:
            shown.write_line("")
            shown.write_line(f"failed in {report.when}: {report.nodeid}", red=True)
            shown.write_line(report.longreprtext)


def tell_failures_at_once(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config))
