"""`camp review` opens a browser: what other users of the machine can see of it, and what the browser does."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import expect, sync_playwright
from small_workspace import small_workspace

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
RECORDER = """
import json, sys
from pathlib import Path
seen = Path(sys.argv[1])
arguments = Path("/proc/self/cmdline").read_text().split("\\0")
seen.with_suffix(".tmp").write_text(json.dumps(arguments))
seen.with_suffix(".tmp").rename(seen)
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "digits"
    small_workspace(path, count=60)
    return path


@dataclass
class Review:
    """A running `camp review`."""

    process: "subprocess.Popen[str]"
    printed: str
    """The address in the terminal."""
    arguments: list[str]
    """Arguments of the browser."""

    @property
    def file(self) -> Path:
        return Path(urlsplit(self.arguments[-2]).path)  # the last one is empty


@contextmanager
def review(workspace: Path, tmp_path: Path) -> Iterator[Review]:
    recorder, seen = tmp_path / "recorder.py", tmp_path / "seen.json"
    recorder.write_text(RECORDER)
    files = tmp_path / "tmp"
    files.mkdir()
    browser = f"{sys.executable} {recorder} {seen} %s"
    program = "import sys; from camp.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "review", str(workspace)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "BROWSER": browser, "TMPDIR": str(files)},
    )
    try:
        assert process.stdout is not None
        printed = process.stdout.readline().strip()
        until(seen.exists)
        yield Review(process, printed, json.loads(seen.read_text()))
    finally:
        process.kill()
        process.communicate()


def until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_no_argument_of_a_process_holds_the_token_or_the_code(workspace: Path, tmp_path: Path) -> None:
    with review(workspace, tmp_path) as running:
        token = running.printed.partition("token=")[2]
        text = running.file.read_text()
        address = text.partition("url=")[2].partition('"')[0]
        code = address.partition("code=")[2]
        assert len(token) == len(code) == 32
        own = Path(f"/proc/{running.process.pid}/cmdline").read_text()
        for secret in (token, code):
            assert not any(secret in argument for argument in [*running.arguments, own])
        assert token not in text
        assert stat.S_IMODE(running.file.stat().st_mode) == 0o600
        assert stat.S_IMODE(running.file.parent.stat().st_mode) == 0o700

        with httpx.Client(trust_env=False) as browser, httpx.Client(trust_env=False) as thief:
            assert browser.get(address).status_code == 200
            until(lambda: not running.file.exists())
            assert thief.get(address).status_code == 403
            top = f"{address.partition('/open')[0]}/"
            assert "review" in browser.get(top).text
            assert thief.get(top).status_code == 403
            # The printed address goes on to work, in another browser as well.
            assert thief.get(running.printed, follow_redirects=True).status_code == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_code_that_nobody_used_leaves_no_file(workspace: Path, tmp_path: Path, number: int) -> None:
    with review(workspace, tmp_path) as running:
        assert running.file.exists()
        until(lambda: httpx.get(running.printed, trust_env=False).status_code == 303)
        running.process.send_signal(number)
        running.process.wait(30)
        assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")
def test_a_browser_that_opens_the_file_shows_the_page(workspace: Path, tmp_path: Path) -> None:
    with review(workspace, tmp_path) as running, sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = opened.new_page()
        page.goto(running.file.as_uri())
        expect(page.locator("nav")).to_contain_text("Categories")
        assert page.url.startswith(running.printed.partition("?")[0])
        assert "code" not in page.url
        page.reload()
        expect(page.locator("nav")).to_contain_text("Categories")
        opened.close()
