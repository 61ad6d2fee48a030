"""What `camp check` finds in a folder."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """Something that is not as it was written."""

    said: str
    """What is damaged, without a full stop."""
    remedy: str
    """What can be done about it, without a full stop."""
    repairable: bool = False
    """Whether `camp check --repair` does it."""
    repaired: bool = False

    def __str__(self) -> str:
        return f"{self.said}. {'Repaired' if self.repaired else 'Remedy'}: {self.remedy}."
