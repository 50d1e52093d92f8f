"""The configuration: typed settings read from flags, environment and a TOML file. Only `server` and `cli` read it."""

from holdfast.config.checks import problems_of
from holdfast.config.listener import Listener
from holdfast.config.load import Loaded, Source, load, read
from holdfast.config.settings import AccessRule, Policy, Settings
from holdfast.errors import ConfigError
from holdfast.problem import Problem
from holdfast.quantity import milliseconds

__all__ = [
    "AccessRule",
    "ConfigError",
    "Listener",
    "Loaded",
    "Policy",
    "Problem",
    "Settings",
    "Source",
    "load",
    "milliseconds",
    "problems_of",
    "read",
]
