"""How a long command ends when it is asked to: what is begun is finished, results are written, the code says why."""

from __future__ import annotations

import os
import queue
import signal
import threading
from types import FrameType
from typing import Any, Self

import typer

_SAID = b"rfkalman: stopping; what is begun is finished and written (once more ends at once)\n"
_BLOCKS, _BYTES = 16, 1 << 16


class Stopped(BaseException):
    """Raised by :meth:`Stop.check`, between two commits; no handler of errors may take it for one."""


class Stop(threading.Event):
    """Ctrl-C, a polite kill and a closed terminal as the wish to stop; a second one ends at once.

    The signal is a wish, not an exception: one raised in the middle of a transaction,
    or inside a callback that swallows it, would be the wrong moment. A signal that is
    ignored (``nohup``) stays ignored.
    """

    def __init__(self) -> None:
        super().__init__()
        self._number = 0
        #: Set while something runs to its end whatever is wanted: :meth:`check` then raises nothing.
        self.patient = False
        self._kept: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):
                number = getattr(signal, name, None)  # Windows has no SIGHUP
                if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                    self._kept[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._kept.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.is_set():
            os._exit(128 + number)  # the store is whole at any instant
        self._number = number
        self.set()
        os.write(2, _SAID)

    def check(self) -> None:
        """Raise :class:`Stopped` if somebody wants an end."""
        if self.is_set() and not self.patient:
            raise Stopped

    def leave(self) -> None:
        """End the command with the code of the signal, 128 plus its number, if there was one."""
        if self.is_set():
            raise typer.Exit(128 + self._number)


class Pipe:
    """A stream read by a thread of its own, so that a signal can end the wait for it and nothing read is lost."""

    def __init__(self, stream: Any, stop: Stop) -> None:
        self._blocks: queue.Queue[bytes] = queue.Queue(_BLOCKS)
        self._stop = stop
        threading.Thread(target=self._pump, args=(stream.fileno(),), daemon=True).start()

    def _pump(self, number: int) -> None:
        # Not through the stream: its buffer's lock, held by a waiting thread, would keep the program from ending.
        block = b"..."
        while block:
            try:
                block = os.read(number, _BYTES)
            except OSError:
                block = b""
            self._blocks.put(block)

    def read1(self, size: int = -1) -> bytes:
        """What has come; waits for more unless an end is wanted, and is empty then or at the end of the stream."""
        while True:
            try:
                return self._blocks.get(timeout=0.0 if self._stop.is_set() else 0.2)
            except queue.Empty:
                if self._stop.is_set():
                    return b""

    read = read1
