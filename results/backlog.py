"""How many requests are in the system: they have arrived, and have not ended."""

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


def under_way(arrival_ns: Times, end_ns: Times, at_ns: npt.NDArray[np.float64]) -> Times:
    """How many are at each of some times. arrival_ns, end_ns: of each request, in any order."""
    arrived, ended = np.sort(arrival_ns), np.sort(end_ns)
    return np.asarray(np.searchsorted(arrived, at_ns) - np.searchsorted(ended, at_ns))
