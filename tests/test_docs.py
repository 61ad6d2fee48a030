"""Check what the documentation says about the code against the code."""

import re
import runpy
from pathlib import Path

import pytest

from camp.cli import COMMANDS, main
from camp.methods.registry import METHODS

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("document", ["README.md", "docs/guide.md", "docs/reproducibility.md"])
def test_every_method_is_named(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    missing = [name for name in METHODS if f"`{name}`" not in text]
    assert not missing


@pytest.mark.parametrize("document", ["README.md", "docs/guide.md", "docs/reproducibility.md"])
def test_commands_in_the_documents_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^\s+\$? ?|`)camp (\w+)", text, flags=re.MULTILINE))
    assert named
    assert named <= set(COMMANDS)


def test_the_guide_explains_every_command_over_a_workspace() -> None:
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    for command in ("learn", "review", "status", "predict", "serve", "export", "check"):
        assert f"    $ camp {command} BIRDS" in guide


def test_options_in_the_guide_are_those_of_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    own = text[text.index("# Your own images\n") : text.index("# Experiments\n")]
    offered = ""
    for command in ("learn", "review", "predict", "serve", "check"):
        assert main([command, "--help"]) == 0
        offered += capsys.readouterr().out
    for option in set(re.findall(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*", own)) - {"--data-binary"}:  # curl's
        assert re.search(rf"{option}[ ,]", offered), option


def test_tables_of_scaling_are_those_that_were_measured() -> None:
    tables = runpy.run_path(str(ROOT / "benchmarks" / "scaling.py"))["tables"]()
    text = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    parts = [part for part in tables.split("\n\n") if part.strip()]
    assert len(parts) == 7
    for part in parts:
        assert part.strip() in text


@pytest.mark.parametrize("document", ["SECURITY.md", "docs/reliability.md", "docs/gpu.md"])
def test_tests_that_are_named_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", text)
    assert named
    assert [name for name in named if f"def {name}(" not in sources] == []
    for path in re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)`", text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize(
    "document",
    ["README.md", "SECURITY.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))],
)
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", path.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        linked = path.parent / target if target else path
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), f"{target}#{anchor}"


def anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings of a Markdown file."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_architecture_names_functions_that_exist_where_it_links_to() -> None:
    path = ROOT / "docs" / "architecture.md"
    named = re.findall(r"\[`(\w+)`\]\((\.\./src/[^)]+)\)", path.read_text(encoding="utf-8"))
    assert len(named) > 40
    for name, source in named:
        text = (path.parent / source).resolve().read_text(encoding="utf-8")
        assert re.search(rf"^\s*(def|class) {name}\b", text, flags=re.MULTILINE), f"{name} in {source}"


def test_files_that_the_documents_name_exist() -> None:
    for document in ("README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))):
        if document == "docs/adding-a-method.md":  # has a test of its own, and names a file to be written
            continue
        text = (ROOT / document).read_text(encoding="utf-8")
        for name in set(re.findall(r"`((?:\w+/)+\w+\.py)`", text)):
            assert any((ROOT / start / name).exists() for start in ("", "src", "src/camp")), (
                f"{name} in {document}"
            )
