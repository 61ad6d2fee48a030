"""Puts this folder on the path, so that tests import the small_* modules beside it."""

import anyio

# Imported when it is first used, by a thread of the server: Python 3.11 cannot parse in two threads at once
# (python/cpython#106905), and pytest parses the modules of its plugins, of which anyio is one.
anyio.open_file  # noqa: B018
