"""What the nodes of a cluster must see."""

import socket
from collections.abc import Sequence
from pathlib import Path

from camp.core.errors import CampError


def node() -> str:
    """Return the name of this node, as the subject of a sentence."""
    return f"The node {socket.gethostname()}"


def check_places(places: Sequence[Path]) -> None:
    """Refuse to work where the files or folders of the images do not exist."""
    for place in places:
        if not place.exists():
            raise CampError(
                f"{node()} does not see {place}; give a URL, or put the pictures on a disk that all nodes share."
            )
