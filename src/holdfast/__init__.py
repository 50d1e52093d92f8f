"""Holdfast: an MQTT broker whose retained messages are complete, durable, versioned and fast."""

import os

__version__ = "0.1.0"

if os.environ.get("HOLDFAST_PURE") == "1":
    from holdfast.build import prefer_source

    prefer_source()
