"""The report of an error that nobody foresaw: a file with the traceback, and one sentence."""

import os
import platform
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence

from camp.core.version import __version__


def crash_sentence(words: Sequence[str], error: BaseException) -> str:
    """Write the traceback of `error` to a file of its own and return a sentence that names it."""
    what = str(error).partition("\n")[0][:200]
    kind = type(error).__name__ + (f": {what}" if what else "")
    try:
        handle, path = tempfile.mkstemp(prefix="camp-error-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"camp {__version__}, Python {sys.version.split()[0]}, {platform.platform()}\n")
            file.write(f"camp {shlex.join(words)}\n\n")
            traceback.print_exception(error, file=file)
    except OSError as fault:
        return (
            f"This is an error of camp itself ({kind}); its report could not be written ({fault.strerror})."
        )
    return f"This is an error of camp itself ({kind}); please report it with the file {path}."
