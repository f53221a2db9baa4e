"""Devices behind the interface of `executor/device.py`. `open_device` makes the one asked for."""

from executor.device import Device
from executor.devices.spin import SpinDevice
from executor.models import SPIN, Sources
from executor.wire import Setup


def open_device(setup: Setup, sources: Sources) -> Device:
    """The device of a worker. Where all models spin nothing is allocated.

    Raises ModelError or DeviceError, in one line.
    """
    if all(bill.model == SPIN for bill in setup.bills):
        return SpinDevice(setup.bills, setup.seed)
    from executor.devices.cpu import CpuDevice  # torch is slow to import

    return CpuDevice(setup.bills, setup.pages, setup.page_bytes, setup.seed, sources)
