"""What a command imports."""

import json
import subprocess
import sys

HEAVY = ("torch", "sklearn", "scipy", "pandas", "onnx", "onnxruntime")
"""Packages that take long to import."""

_CODE = """
import json, sys
from camp.cli import main
codes = [main(words) for words in json.loads(sys.argv[1])]
print(json.dumps([codes, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def heavy_imports(*commands: list[str]) -> tuple[list[int], set[str]]:
    """Call commands in a process of their own; return their exit codes, and which of HEAVY were imported."""
    arguments = [sys.executable, "-c", _CODE, json.dumps(commands)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    codes, modules = json.loads(done.stdout.splitlines()[-1])
    return codes, set(modules) & set(HEAVY)
