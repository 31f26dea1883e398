"""Several worker processes on one port: started, restarted when they die, stopped together."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from types import FrameType

from app.observability.logs import logger

RESTART_SECONDS = 1.0


class Supervisor:
    """Runs `run(index)` in `count` processes that share everything loaded so far (fork)."""

    def __init__(self, count: int, run: Callable[[int], None]) -> None:
        self._run = run
        self._context = multiprocessing.get_context("fork")
        self._workers: dict[int, ForkProcess] = {}
        self._count = count
        self._stopping = False

    def serve(self) -> int:
        """Supervise until SIGTERM or SIGINT; the exit code of this process."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        for index in range(self._count):
            self._start(index)
        while self._workers:
            wait([worker.sentinel for worker in self._workers.values()], timeout=1)
            for index, worker in list(self._workers.items()):
                if not worker.is_alive():
                    self._buried(index, worker)
        return 0

    def _start(self, index: int) -> None:
        worker = self._context.Process(target=_worker, args=(self._run, index))
        worker.start()
        self._workers[index] = worker

    def _buried(self, index: int, worker: ForkProcess) -> None:
        del self._workers[index]
        if self._stopping:
            return
        logger().error("worker_died", worker=index, exit_code=worker.exitcode)
        time.sleep(RESTART_SECONDS)
        if not self._stopping:
            self._start(index)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._stopping = True
        for worker in self._workers.values():
            worker.terminate()


def _worker(run: Callable[[int], None], index: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    run(index)
