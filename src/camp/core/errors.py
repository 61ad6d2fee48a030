"""Exceptions whose message is meant for the user."""


class CampError(Exception):
    """An error that the user can correct; its message is one sentence that says what to do."""


class ReportedError(CampError):
    """An error that every process of a distributed run raises; only the main process prints it."""


class LostProcessError(CampError):
    """Another process of a distributed run has ended."""
