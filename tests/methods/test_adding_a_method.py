"""docs/adding-a-method.md, followed literally."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from camp.cli import main
from camp.methods import registry
from camp.methods.gccd import settings
from camp.methods.registry import METHODS, MethodInfo

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "adding-a-method.md").read_text(encoding="utf-8")
SETTINGS, FILE, LINE = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.mark.slow
def test_the_method_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = dict(vars(settings))
    exec(SETTINGS, given)
    monkeypatch.setattr(settings, "CenterSettings", given["CenterSettings"], raising=False)
    path = tmp_path / "center.py"
    path.write_text(FILE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("camp.methods.gccd.center", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    [(name, info)] = eval("{" + LINE + "}", vars(registry)).items()
    assert isinstance(info, MethodInfo)
    monkeypatch.setitem(METHODS, name, info)
    command = re.search(r"camp (run --method center .*) --out", TEXT)
    assert command is not None
    small = ["--images-per-class", "12", "--test-per-class", "4", "--tasks", "2", "--quiet"]
    assert main([*command[1].split(), *small, "--out", str(tmp_path / "center")]) == 0
    tasks = json.loads((tmp_path / "center" / "results.json").read_text(encoding="utf-8"))["tasks"]
    assert len(tasks) == 2


def test_files_and_functions_that_the_page_names_exist() -> None:
    folder = ROOT / "src" / "camp" / "methods"
    files = {path.name for path in folder.rglob("*.py")} | {"base.py", "test_adding_a_method.py"}
    code = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    for name in re.findall(r"`(\w+\.py)`", TEXT):
        assert name in files, name
    for name in re.findall(r"`(_\w+)`", TEXT):
        assert f"def {name}(" in code, name
