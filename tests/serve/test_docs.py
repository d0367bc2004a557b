"""The code of docs/serve.md, run against a real server whose models have other names."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.serve.processes import Served
from tests.test_docs import ROOT, blocks

NAMES = {'"stories"': '"text"', '"minilm"': '"vectors"'}


def ours(served: Served, language: str) -> str:
    (program,) = blocks(ROOT / "docs" / "serve.md", language)
    for name, here in {**NAMES, "http://127.0.0.1:8028": served.url}.items():
        program = program.replace(name, here)
    return program


def test_python(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(ours(served, "python"), "serve.md", "exec"), {})
    assert capsys.readouterr().out.endswith("16\n")


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_curl(served: Served) -> None:
    said = subprocess.run(["sh", "-ec", ours(served, "sh")], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stderr
    assert '"id":"text"' in said.stdout
    assert said.stdout.count('"translations"') == 2
    assert said.stdout.endswith("data: [DONE]\n\n")
    assert '"error"' not in said.stdout


@pytest.mark.skipif(shutil.which("node") is None, reason="no node")
def test_javascript(served: Served, tmp_path: Path) -> None:
    (tmp_path / "ask.mjs").write_text(ours(served, "js"))
    said = subprocess.run(["node", tmp_path / "ask.mjs"], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stderr
    translated = served.post("/translate", {"text": "3 mars 2029"}).json()["results"][0]["translations"][0]["text"]
    asked = {"model": "text", "prompt": "Once", "max_tokens": 40, "seed": 3}
    written = served.post("/v1/completions", asked).json()["choices"][0]["text"]
    assert said.stdout == f"{translated}\n{written}\n"
