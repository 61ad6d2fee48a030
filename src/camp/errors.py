"""The one exception a person is meant to read."""


class CampError(Exception):
    """Something the user can put right; its text is one sentence that says what was given and what to do."""
