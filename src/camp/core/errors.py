"""Exceptions whose message is meant for the user."""


class CampError(Exception):
    """An error that the user can correct; its message is one sentence that says what to do."""


class ReportedError(CampError):
    """An error that every process of a distributed run raises; only the main process prints it."""


class LostProcessError(CampError):
    """Another process of a distributed run has ended."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that there is too little memory, in any of the ways of torch and Python.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(ValueError())
    (True, False)
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
