"""Pages in Debian's Chromium without a window, spoken to over two pipes: nothing but the browser is needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

WIDTHS = (390, 800, 1280, 1920)
"""In CSS pixels, from a telephone to a large screen."""
LEAST_LETTERS = 9.0
SHOWN_DRAWINGS = (
    """[...document.querySelectorAll("svg")].filter(one => one.getBoundingClientRect().width > 0)"""
)

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--headless",
    "--no-sandbox",  # which is refused to root, as whom containers run
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Browser:
    """One tab."""

    def __init__(self, commands: int, replies: int) -> None:
        self._commands, self._replies = commands, os.fdopen(replies, "rb")
        self._unread = b""
        self._number = 0
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Page.enable")

    def show(self, page: Path, width: int, dark: bool = False) -> None:
        """Load a page in a window of so many CSS pixels, and wait until it is laid out."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Page.navigate", url=page.as_uri())
        while self._message().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression: str) -> Any:
        """Return what JavaScript says in the page."""
        reply = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def close(self) -> None:
        """End the browser."""
        self._session = None
        with suppress(OSError, EOFError):
            self._call("Browser.close")
        os.close(self._commands)
        self._replies.close()

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (reply := self._message()).get("id") != self._number:
            pass
        assert "error" not in reply, f"{method}: {reply['error']}"
        return reply["result"]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            more = self._replies.read1(1 << 16)
            if not more:
                raise EOFError("the browser has ended")
            self._unread += more
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)


@contextmanager
def open_browser(profile: Path) -> Iterator[Browser]:
    """Start a browser with its profile in a folder.

    Where there is none the test is left out, or fails if SHIELDFL_REQUIRE_BROWSER is set, as in `make check`.
    """
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        leave = pytest.fail if os.environ.get("SHIELDFL_REQUIRE_BROWSER") else pytest.skip
        leave("no browser to look at pages with: install one by `apt install chromium`")
    command_end, our_commands = os.pipe()
    our_replies, reply_end = os.pipe()
    # The browser reads from descriptor 3 and writes to 4, which a shell can give it.
    script = f'exec "$@" 3<&{command_end} 4>&{reply_end}'
    process = subprocess.Popen(
        ["bash", "-c", script, "browser", program, *_OPTIONS, f"--user-data-dir={profile}"],
        pass_fds=(command_end, reply_end),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(command_end)
    os.close(reply_end)
    try:
        browser = Browser(our_commands, our_replies)
        try:
            yield browser
        finally:
            browser.close()
        process.wait(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def measure(browser: Browser, expression: str) -> Any:
    """Return what statements of JavaScript return on the page that is shown."""
    return browser.evaluate(f"(() => {{ {expression} }})()")


def show_all(browser: Browser, page: Path, width: int) -> Browser:
    """Show a page with what is folded away at first, which is looked at, too."""
    browser.show(page, width)
    browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    return browser


def assert_nothing_overflows(shown: Browser) -> None:
    """Fail where the page is wider than the window, or anything on it is cut at the right."""
    width, room = shown.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert width <= room
    cut = measure(
        shown,
        """return [...document.querySelectorAll("main *")]
        .filter(one => !one.closest(".scroll, svg") && one.getBoundingClientRect().right > innerWidth + 0.5)
        .map(one => one.outerHTML.slice(0, 80));""",
    )
    assert cut == []
