"""Devices: what a worker runs actions on (`executor/device.py`)."""
