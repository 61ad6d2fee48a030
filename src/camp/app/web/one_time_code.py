"""A code that admits a browser once, and the private file that takes the code to the browser.

Every user of a machine can read the arguments of every process, so that the address given to a browser must hold no
secret. The browser is given the path of a file instead, which only the present user can read. The file redirects to an
address with a code, which is exchanged for the session cookie once and soon expires.
"""

import contextlib
import html
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LIFETIME = 60.0
"""Seconds in which the code can be used."""
PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}">
<title>CAMP</title>
"""


class OneTimeCode:
    """A random code that is valid once, for a short time; safe to use from several threads.

    >>> code = OneTimeCode()
    >>> code.redeem("a guess"), code.redeem(code.text), code.redeem(code.text)
    (False, True, False)
    """

    def __init__(self, lifetime: float = LIFETIME, clock: Callable[[], float] = time.monotonic) -> None:
        self.text = secrets.token_urlsafe(24)
        self.lifetime = lifetime
        self._clock = clock
        self._expires = clock() + lifetime
        self._lock = threading.Lock()
        self._used = threading.Event()

    def redeem(self, given: str) -> bool:
        """Return whether `given` is the code and was not used before; from now on it is used."""
        if not secrets.compare_digest(given.encode(), self.text.encode()):
            return False
        with self._lock:
            valid = not self._used.is_set() and self._clock() < self._expires
            self._used.set()
        return valid

    def wait(self) -> None:
        """Return when the code was used or has expired."""
        self._used.wait(self.lifetime)


@contextlib.contextmanager
def redirect_file(address: str) -> Iterator[Path]:
    """Write a page that redirects to `address`, which only the present user can read; remove it in the end."""
    with tempfile.TemporaryDirectory(prefix="camp-", ignore_cleanup_errors=True) as folder:  # mode 700
        path = Path(folder) / "open.html"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as page:
            page.write(PAGE.format(address=html.escape(address)))
        yield path
