"""What the documents say about the code is held against the code."""

import re
from pathlib import Path

import pytest

from camp.methods import METHODS

ROOT = Path(__file__).parent.parent
ADDING = (ROOT / "docs" / "adding-a-method.md").read_text(encoding="utf-8")


def test_adding_a_method_shows_code_that_exists() -> None:
    blocks = re.findall(r"```python\n(.*?)```", ADDING, flags=re.DOTALL)
    source = "".join(
        (ROOT / "src" / "camp" / "methods" / name).read_text(encoding="utf-8")
        for name in ("gcd_fd.py", "__init__.py")
    )
    assert len(blocks) == 3
    for block in blocks:
        assert block.strip("\n") in source


def test_adding_a_method_names_files_and_functions_that_exist() -> None:
    folder = ROOT / "src" / "camp" / "methods"
    code = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    for name in re.findall(r"`(\w+\.py)`", ADDING):
        assert (folder / name).exists(), name
    for name in re.findall(r"`(_\w+)`", ADDING):
        assert f"def {name}(" in code, name


@pytest.mark.parametrize("document", ["README.md", "docs/guide.md", "docs/reproducibility.md"])
def test_every_method_is_named(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    missing = [name for name in METHODS if f"`{name}`" not in text]
    assert not missing
