"""A load generator for any MQTT broker, behind `holdfast bench` and `make bench`.

A package of its own, because it shares nothing with the broker it measures but `holdfast.errors`. Its codec is compiled
as a group of its own, so that a change to it does not touch the broker's build.
"""

import holdfast  # noqa: F401 - HOLDFAST_PURE=1 asks for the interpreted codec too, and this is where it is heard
