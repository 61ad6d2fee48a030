"""Provenance: which software on which hardware made a result."""

import functools
import subprocess
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from camp.core.version import __version__


class Provenance(BaseModel):
    """The software and hardware that made a result, as `config.json` and workspace steps record it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: str
    commit: str | None = None
    """Git commit of the source tree, with "+changes" if files differ from it; None for an installed package."""
    torch: str | None = None
    device: str = "cpu"
    threads: int | None = None


def current_provenance(device: str = "cpu") -> Provenance:
    """Describe the present process, whose model runs on `device`."""
    import torch

    return Provenance(
        version=__version__,
        commit=git_commit(),
        torch=torch.__version__,
        device=device,
        threads=torch.get_num_threads(),
    )


@functools.cache
def git_commit() -> str | None:
    """Return the commit of the source tree that this package runs from, or None without one."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():  # an installed package, perhaps inside another repository
        return None
    commit = _git(root, "rev-parse", "HEAD")
    changes = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "src")
    return f"{commit}+changes" if commit and changes else commit


def _git(root: Path, *arguments: str) -> str | None:
    """Output of a git command; None if git is missing or refuses."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
