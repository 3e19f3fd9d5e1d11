"""The simulator: scans of streets that never were, with true labels."""

from __future__ import annotations

from pctx.data.simulator.sensor import SENSORS, Sensor
from pctx.data.simulator.simulate import VERSION, simulate

__all__ = ["SENSORS", "VERSION", "Sensor", "simulate"]
