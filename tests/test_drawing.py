"""Whoever imports Clearhead into a notebook keeps the notebook's way of showing pictures."""

import json
import os
import subprocess
import sys
from pathlib import Path

# "template" draws nothing: a backend that nobody would choose by accident
DRAWN = """
import sys
from pathlib import Path
import matplotlib
import clearhead.decoding.pictures
from clearhead.lab import catalogue, drawing
from clearhead.lab.intervals import interval
from clearhead.run import Run
from clearhead.training.plot import plot

catalogue.everything()
figure, (axes,) = drawing.panels(1)
drawing.lines(axes, [1, 2], {"a": [interval([1.0]), interval([2.0])]}, "x", "y")
assert "<svg" in drawing.to_svg(figure)
assert all(path.stat().st_size > 1000 for path in plot(Run(sys.argv[1])))
assert "matplotlib.pyplot" not in sys.modules, "pyplot holds figures and a backend for the whole process"
assert matplotlib.get_backend() == "template"
"""


def test_drawing_leaves_the_backend_alone(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[model]\nvocab_size = 9\n")
    rows = [{"step": step, "loss": 1 / step, "rate": 0.1, "norm": 1.0} for step in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [sys.executable, "-c", DRAWN, str(tmp_path)]
    done = subprocess.run(words, env={**os.environ, "MPLBACKEND": "template"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
