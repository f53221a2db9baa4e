"""What an event loop waits with: as precise as select(), for as many files as epoll.

epoll waits for whole milliseconds, which is as long as an inference. select() waits for
microseconds, but cannot watch a file whose number is FD_SETSIZE (1,024) or more: with that many
connections a loop on it ends with a ValueError. An epoll is a file itself: select() waits for it.
"""

import select
import selectors
import sys

if sys.platform == "linux":

    class PreciseSelector(selectors.EpollSelector):
        """Make it before many files are open: its own number has to be below FD_SETSIZE."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            """As of any selector. timeout: seconds; None waits for ever."""
            if timeout is None or timeout > 0:
                select.select([self.fileno()], [], [], timeout)
            return super().select(0)

else:  # kqueue is precise
    PreciseSelector = selectors.DefaultSelector
