"""`tokenizer.json` of Hugging Face: the same keys, and what is done to a text before and after."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Peer

from clearhead.errors import InputError
from clearhead.tokenizer import load, train


@pytest.fixture
def content() -> dict[str, Any]:
    return json.loads(train(["ab ab cd cd"], 264).to_json())


def test_a_file_is_as_tokenizers_writes_it(content: dict[str, Any]) -> None:
    assert json.loads(Peer.from_str(json.dumps(content)).to_str()) == content


def test_a_template_is_not_applied_and_said_so(content: dict[str, Any], tmp_path: Path) -> None:
    content["post_processor"] = {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.warns(UserWarning, match="adds special tokens around a text; encode does not"):
        load(tmp_path)


def test_a_post_processor_that_adds_nothing_is_passed_over(
    content: dict[str, Any], tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    for processor in (byte_level, {"type": "Sequence", "processors": [byte_level]}):
        content["post_processor"] = processor
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        load(tmp_path)
    assert [str(one.message) for one in recwarn] == []


def test_added_tokens_that_overlap_are_looked_for_in_an_order(content: dict[str, Any], tmp_path: Path) -> None:
    """tokenizers looks for those that are not normalized first, so that a shorter one wins over a longer one."""
    path = tmp_path / "tokenizer.json"
    early, late = (False, True), (True, False)
    whole = (("<pad><", early), ("<pad><", late), ("pad", late))
    for text, flags in (*whole, (">x", early), ("x<", early), (">x", late), ("x<", late)):
        clash = {**content["added_tokens"][0], "id": 264, "content": text, "normalized": flags[0]}
        rest = [{**token, "normalized": flags[1]} for token in content["added_tokens"]]
        path.write_text(json.dumps({**content, "added_tokens": [*rest, clash]}))
        with pytest.raises(InputError, match=r"the added tokens .* overlap"):
            load(path)
    clash = {**content["added_tokens"][0], "id": 264, "content": "<pad><"}
    path.write_text(json.dumps({**content, "added_tokens": [*content["added_tokens"], clash]}))
    assert load(path).encode("<pad><s>", "all") == Peer.from_file(str(path)).encode("<pad><s>").ids
    path.write_text(json.dumps({**content, "added_tokens": [*content["added_tokens"], {**clash, "id": 999}]}))
    assert Peer.from_file(str(path)).encode("<pad><").ids == [264]
    with pytest.raises(InputError, match="'<pad><' has the id 999, but tokenizers gives it 264"):
        load(path)
