"""The OpenAPI description, tried by schemathesis against a real process: whatever fits it is answered as it says, and
whatever does not is refused, without a server error."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.serve.processes import Served, ask


@pytest.fixture(scope="module")
def description(served: Served) -> Any:
    return ask.get(f"{served.url}/openapi.json").json()


ASKED: dict[str, dict[str, Any]] = {
    "/v1/completions": {"model": "text", "prompt": "the", "max_tokens": 3, "logprobs": 2},
    "/v1/embeddings": {"model": "vectors", "input": ["the cat", "a dog"]},
    "/translate": {"text": "the cat", "n_best": 2, "alignment": True},
    "/predict": {"text": ["a lovely film", "no"]},
}


@pytest.mark.parametrize("path", ASKED)
def test_answers_are_as_described(path: str, description: Any, served: Served) -> None:
    post = description["paths"][path]["post"]
    jsonschema.validate(ASKED[path], post["requestBody"]["content"]["application/json"]["schema"])
    answer = served.post(path, ASKED[path])
    jsonschema.validate(answer.json(), post["responses"]["200"]["content"]["application/json"]["schema"])
    wrong = served.post(path, {**ASKED[path], "nothing": 1})
    assert wrong.status_code == 400
    jsonschema.validate(wrong.json(), post["responses"]["400"]["content"]["application/json"]["schema"])


def test_models_are_named_where_they_can_be_asked(description: Any) -> None:
    def names(path: str) -> Any:
        asked = description["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        return asked["properties"]["model"]["enum"]

    assert names("/v1/completions") == ["text", "endless"]
    assert names("/v1/embeddings") == ["vectors", "films"]
    assert names("/predict") == ["films", None]


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_schemathesis_finds_nothing(seed: int, served: Served, tmp_path: Path) -> None:
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    checks += ",negative_data_rejection,unsupported_method"
    words = [sys.executable, "-m", "schemathesis.cli", "run", f"{served.url}/openapi.json", "--checks", checks]
    words += ["--max-examples", "150", "--seed", str(seed), "--phases", "examples,coverage,fuzzing", "--no-color"]
    words += ["--request-timeout", "60"]
    said = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=dict(os.environ), timeout=1200)
    assert said.returncode == 0, said.stdout[-6000:] + said.stderr[-2000:]
    assert "Traceback" not in served.said()
