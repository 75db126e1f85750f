"""A headless Chromium on two pipes: loads a page, watches every request it makes, measures, prints."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 60.0
_START = "import os, sys; [os.dup2(int(sys.argv[i]), i + 2) for i in (1, 2)]; os.execv(sys.argv[3], sys.argv[3:])"


def find() -> str | None:
    """The browser of this machine, if there is one."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """The DevTools protocol without a library: JSON messages that end in a zero byte, on descriptors 3 and 4."""

    def __init__(self, program: str) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="browser", ignore_cleanup_errors=True)
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()
        # Out of the way of 3 and 4, which the program below sets up.
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (to_child, from_child)]
        for fd in (to_child, from_child):
            os.close(fd)
        command = [
            sys.executable,
            "-c",
            _START,
            *map(str, ends),
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={self._home.name}",
            "about:blank",
        ]
        self._process = subprocess.Popen(
            command,
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for fd in ends:
            os.close(fd)
        self._number, self._rest = 0, b""
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = None
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        os.close(self._write)
        os.close(self._read)
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            # Its own session, so exactly the processes that were started here.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._home.cleanup()

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; what happens meanwhile is kept in ``events``."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']}")
                answer: dict[str, Any] = found["result"]
                return answer
            self.events.append(found)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the browser said nothing for {PATIENCE:g} s")
            got = os.read(self._read, 1 << 20)
            if not got:
                raise RuntimeError("the browser has gone")
            self._rest += got
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def load(self, page: Path, width: int, height: int = 900, *, scripts: bool = True) -> None:
        """Show a page at a size; ``events`` then tells what it asked for."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        self.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.events.clear()
        self.ask("Page.navigate", url=page.resolve().as_uri())
        end = time.monotonic() + PATIENCE
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            if time.monotonic() > end:
                raise TimeoutError("the page was never loaded")
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        """What an expression gives in the page."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def requests(self) -> list[str]:
        """Addresses the page asked for, itself included, without the pictures it carries."""
        asked = [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in asked if not url.startswith("data:")]

    def complaints(self) -> list[str]:
        """What went wrong in the page: errors of scripts, and what its policy refused."""
        found = []
        for event in self.events:
            method, given = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(str(given["exceptionDetails"]))
            elif method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
                found.append(given["entry"]["text"])
        return found

    def screenshot(self, full: bool = True) -> bytes:
        """The page as a PNG."""
        return base64.b64decode(self.ask("Page.captureScreenshot", captureBeyondViewport=full)["data"])

    def printed(self) -> bytes:
        """The page as a PDF on A4."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True, "preferCSSPageSize": True}
        return base64.b64decode(self.ask("Page.printToPDF", **paper)["data"])
