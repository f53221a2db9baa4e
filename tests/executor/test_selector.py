import asyncio
import os

import pytest

from executor.selector import PreciseSelector

fcntl = pytest.importorskip("fcntl", reason="only POSIX numbers its files so")
resource = pytest.importorskip("resource")

FD_SETSIZE = 1_024  # sys/select.h


def test_a_loop_watches_files_that_select_has_no_number_for() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = 2 * FD_SETSIZE
    if before[1] != resource.RLIM_INFINITY and before[1] < enough:
        pytest.skip(f"needs {enough} open files; this machine allows {before[1]}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], enough), before[1]))
    reading, writing = os.pipe()
    high = fcntl.fcntl(reading, fcntl.F_DUPFD, FD_SETSIZE + 1)

    async def story() -> bytes:
        loop = asyncio.get_running_loop()
        read: asyncio.Future[bytes] = loop.create_future()
        loop.add_reader(high, lambda: read.set_result(os.read(high, 9)))
        loop.call_later(0.01, os.write, writing, b"here")
        try:
            return await asyncio.wait_for(read, 30)
        finally:
            loop.remove_reader(high)

    loop = asyncio.SelectorEventLoop(PreciseSelector())
    try:
        assert loop.run_until_complete(story()) == b"here"
    finally:
        loop.close()
        for file in (reading, writing, high):
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
