"""Packages that only some users need: they belong to an extra, and are imported where they are used."""

import importlib
from typing import Any

from camp.core.errors import CampError


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """Import a module of an extra; if it is missing, a `CampError` names the extra.

    Args:
        module: The module.
        extra: The extra of this project that its package belongs to.
        purpose: What needs it, as the subject of a sentence.

    >>> import_extra("no_such_package", "formats", "Reading Parquet files")
    Traceback (most recent call last):
    camp.core.errors.CampError: Reading Parquet files needs no_such_package: pip install "camp-discovery[formats]".
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise CampError(f'{purpose} needs {package}: pip install "camp-discovery[{extra}]".') from None
