"""What NVIDIA's management library says of a GPU: clocks, temperature, what slows it down."""

from typing import Any, Final

from executor.device import DeviceState

_REASONS: Final = {
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x20: "too hot (software)",
    0x40: "too hot (hardware)",
    0x80: "external power brake",
}
"""Of the bits of nvmlDeviceGetCurrentClocksEventReasons those that are throttling; not idle, clocks
that an operator has set, sync boost or display."""


class Nvml:
    """One GPU. uuid: "GPU-...", so that CUDA_VISIBLE_DEVICES does not matter. Where the library is
    missing, or refuses an answer, the state has None there."""

    def __init__(self, uuid: str) -> None:
        self._nvml: Any = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            self._nvml = pynvml
        except Exception:  # ImportError, NVMLError: there is nothing to ask then
            return

    def state(self, name: str) -> DeviceState:
        """As of now; the memory is the caller's to fill in."""
        nvml = self._nvml
        if nvml is None:
            return DeviceState(name, 0, 0)
        reasons = (
            self._asked("nvmlDeviceGetCurrentClocksEventReasons")
            or self._asked("nvmlDeviceGetCurrentClocksThrottleReasons")  # before driver 535
            or 0
        )
        return DeviceState(
            name,
            0,
            0,
            clock_mhz=self._asked("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            temperature_c=self._asked("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            throttled=", ".join(why for bit, why in _REASONS.items() if reasons & bit),
        )

    def close(self) -> None:
        """The library is not needed any more."""
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
            self._nvml = None

    def _asked(self, function: str, *args: Any) -> int | None:
        try:
            return int(getattr(self._nvml, function)(self._gpu, *args))
        except Exception:  # not on this GPU, or not in this version
            return None
