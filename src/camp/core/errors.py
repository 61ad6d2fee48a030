"""The one exception a person is meant to read."""


class CampError(Exception):
    """Something the user can put right; its text is one sentence that says what was given and what to do."""


class ReportedError(CampError):
    """A mistake that every process of a run was told of; the first one says it."""


class LostProcessError(CampError):
    """Another of the processes that train together has ended."""
