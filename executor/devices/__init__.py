"""Devices behind the interface of `executor/device.py`. `open_device` makes the one asked for."""

from executor.device import Device
from executor.devices.spin import SpinDevice
from executor.models import SPIN, Sources
from executor.wire import Setup


def open_device(setup: Setup, sources: Sources, gpu: int = 0) -> Device:
    """The device of a worker. On a CPU nothing is allocated where all models spin.

    gpu: which one of this machine. Raises ModelError or DeviceError, in one line.
    """
    if setup.device == "cuda":
        from executor.devices.cuda_driver import open_cuda

        return open_cuda(setup, sources, gpu)
    if all(bill.model == SPIN for bill in setup.bills):
        return SpinDevice(setup.bills, setup.seed)
    from executor.devices.cpu import CpuDevice

    return CpuDevice(setup.bills, setup.pages, setup.page_bytes, setup.seed, sources)
