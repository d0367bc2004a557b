"""GPT-2's vocabulary in three hands: ours, tiktoken's and tokenizers'; and the standard library's sources."""

import os
import sysconfig
from pathlib import Path

import pytest
import tiktoken
from tokenizers import Tokenizer, models, pre_tokenizers

from clearhead.tokenizer import BytePair, load
from clearhead.tokenizer.split import GPT2

# tokenizers' threads would take the core of the test beside this one
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session")
def gpt2(data: Path) -> BytePair:
    tokenizer = load(data / "gpt2-bpe")
    assert isinstance(tokenizer, BytePair)
    return tokenizer


@pytest.fixture(scope="session")
def gpt2_tiktoken(gpt2: BytePair) -> tiktoken.Encoding:
    return tiktoken.Encoding("gpt2", pat_str=GPT2, mergeable_ranks=gpt2.vocabulary, special_tokens=gpt2.special)


@pytest.fixture(scope="session")
def gpt2_tokenizers(data: Path) -> Tokenizer:
    folder = data / "gpt2-bpe"
    peer = Tokenizer(models.BPE.from_file(str(folder / "encoder.json"), str(folder / "vocab.bpe")))
    peer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
    return peer


@pytest.fixture(scope="session")
def stdlib() -> list[str]:
    """Every source of the standard library that is UTF-8 (a few are there to test other encodings)."""
    root = Path(sysconfig.get_paths()["stdlib"])
    texts = []
    for path in sorted(root.rglob("*.py")):
        if "site-packages" not in path.parts:
            try:
                texts.append(path.read_bytes().decode())
            except UnicodeDecodeError:
                continue
    return texts
