"""The official client, unchanged."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import openai
import pytest

import clearhead
from tests.serve.processes import Served, ask, serving


@pytest.fixture(scope="module")
def client(served: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0, timeout=30)


@pytest.fixture(scope="module")
def text(runs: list[Path]) -> Any:
    return clearhead.load(runs[1], threads=1)


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["pairs", "text", "vectors", "endless", "films"]
    assert client.models.retrieve("text").id == "text"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nothing")


HOW = [{"temperature": 0}, {"temperature": 1.2, "top_p": 0.9}, {}, {"temperature": 1e-310, "top_p": 1e-9}]


@pytest.mark.parametrize("how", HOW)
def test_completions_are_those_of_generate(how: dict[str, Any], client: openai.OpenAI, text: Any) -> None:
    made = client.completions.create(model="text", prompt=["the cat", ""], seed=5, n=2, max_tokens=9, logprobs=2, **how)
    wanted = text.generate(["the cat", ""], seed=5, samples=2, max_tokens=9, **how)
    assert [choice.text for choice in made.choices] == [one.text for one in wanted]
    assert [choice.index for choice in made.choices] == [0, 1, 2, 3]
    for choice, one in zip(made.choices, wanted, strict=True):
        assert choice.finish_reason == ("stop" if one.finished else "length")
        assert choice.logprobs is not None
        assert choice.logprobs.token_logprobs == pytest.approx(one.log_probs[: len(one.tokens)], abs=1e-4)
        assert [len(best) for best in choice.logprobs.top_logprobs or []] == [2] * len(one.tokens)
    assert made.usage is not None
    assert made.usage.completion_tokens == sum(len(one.tokens) for one in wanted)
    assert made.usage.prompt_tokens == len(text.prompt("the cat")) + len(text.prompt(""))


def test_token_ids_are_a_prompt(client: openai.OpenAI, text: Any) -> None:
    ids = text.prompt("the dog")
    by_ids = client.completions.create(model="text", prompt=ids, temperature=0)
    assert by_ids.choices[0].text == text.generate("the dog", temperature=0)[0].text


def test_streams_are_the_same_text(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "text", "prompt": ["the cat", "dog"], "seed": 8, "max_tokens": 30, "logprobs": 1}
    whole = client.completions.create(**asked)
    texts, tokens, used, reasons = ["", ""], [list[str](), list[str]()], None, {}
    for event in client.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        used = event.usage or used
        for choice in event.choices:
            texts[choice.index] += choice.text
            tokens[choice.index] += choice.logprobs.tokens or [] if choice.logprobs else []
            if choice.finish_reason:
                reasons[choice.index] = choice.finish_reason
    assert texts == [choice.text for choice in whole.choices]
    assert tokens == [choice.logprobs.tokens for choice in whole.choices if choice.logprobs]
    assert reasons == {choice.index: choice.finish_reason for choice in whole.choices}
    assert used == whole.usage


def test_stop_ends_the_text_before_it(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "text", "prompt": "the", "seed": 8, "max_tokens": 40, "logprobs": 0}
    whole = client.completions.create(**asked).choices[0].text
    stop = whole[5:8]
    cut = client.completions.create(**asked, stop=["never there", stop]).choices[0]
    assert (cut.text, cut.finish_reason) == (whole[: whole.index(stop)], "stop")
    assert cut.logprobs is not None
    assert all(offset < len(cut.text) for offset in cut.logprobs.text_offset or [])
    pieces = [event.choices[0].text for event in client.completions.create(**asked, stop=stop, stream=True)]
    assert "".join(pieces) == cut.text


def test_embeddings(client: openai.OpenAI, runs: list[Path]) -> None:
    texts = ["the cat", "a dog sat", "日本"]
    states = clearhead.load(runs[2], threads=1).encode(texts)
    wanted = [(one.mean(0) / one.mean(0).norm()).tolist() for one in states]
    made = client.embeddings.create(model="vectors", input=texts)  # the client asks for base64 by itself
    plain = client.embeddings.create(model="vectors", input=texts, encoding_format="float")
    for found in (made, plain):
        assert numpy.allclose([one.embedding for one in found.data], wanted, atol=1e-5)
    assert made.usage.prompt_tokens == plain.usage.prompt_tokens > 3


@pytest.mark.parametrize(
    ("asked", "kind", "said"),
    [
        (
            {"model": "nothing"},
            openai.NotFoundError,
            "no model 'nothing'; served: pairs, text, vectors, endless, films",
        ),
        ({"model": "pairs"}, openai.BadRequestError, "the model 'pairs' cannot do this; it can: translate"),
        ({"temperature": -1}, openai.BadRequestError, "temperature must be from 0 to 100, not -1"),
        ({"max_tokens": 0}, openai.BadRequestError, "max_tokens must be from 1"),
        ({"max_tokens": 5000}, openai.BadRequestError, "at most 2048 in all"),
        ({"prompt": "x" * 3000}, openai.BadRequestError, "at most 2048 in all"),
        ({"prompt": [10**6]}, openai.BadRequestError, "a prompt of token ids"),
        ({"prompt": ["a"] * 65}, openai.BadRequestError, "at most 64 in one request"),
        ({"echo": True}, openai.BadRequestError, "echo = True is not one of False"),
        ({"logit_bias": {"5": 1}}, openai.BadRequestError, "logit_bias must have no entries"),
        ({"extra_body": {"tempreature": 1}}, openai.BadRequestError, "did you mean 'temperature'?"),
    ],
)
def test_errors_say_what_is_wrong(
    asked: dict[str, Any], kind: type[openai.APIStatusError], said: str, client: openai.OpenAI
) -> None:
    with pytest.raises(kind) as found:
        client.completions.create(**{"model": "text", "prompt": "the", **asked})
    assert said in found.value.message
    assert found.value.type == "invalid_request_error"


def test_a_stream_can_be_left(client: openai.OpenAI, served: Served) -> None:
    """The server goes on with others; that it stops decoding is tested in test_app.py."""
    asked: dict[str, Any] = {"model": "endless", "prompt": "the", "max_tokens": 2000, "temperature": 0}
    before = served.said().count("/v1/completions 200")
    with client.completions.create(**asked, stream=True) as stream:
        next(iter(stream))
    for _ in range(200):
        if served.said().count("/v1/completions 200") > before:
            break
        time.sleep(0.05)
    assert served.said().count("/v1/completions 200") > before
    assert client.completions.create(**{**asked, "max_tokens": 3}).choices[0].finish_reason == "length"


def test_a_wrong_key_a_full_queue_a_deadline_and_ctrl_c(runs: list[Path], tmp_path: Path) -> None:
    """What the client raises for each; to a full queue it comes back by itself."""
    (tmp_path / "token").write_text("0123456789abcdef")
    options = ("--token-file", str(tmp_path / "token"), "--batch", "1", "--queue", "1", "--deadline", "3")
    asked: dict[str, Any] = {"model": "endless", "prompt": "the", "temperature": 0}
    with serving(runs[3:4], *options) as made:
        client = openai.OpenAI(base_url=f"{made.url}/v1", api_key="0123456789abcdef", max_retries=0, timeout=30)
        with pytest.raises(openai.AuthenticationError, match="a bearer token is needed"):
            client.with_options(api_key="0123456789abcdeg").models.list()

        def waiting() -> int:
            return int(ask.get(f"{made.url}/healthz", headers=client.auth_headers).json()["waiting"])

        with client.completions.create(**asked, max_tokens=2000, stream=True) as first:
            next(iter(first))  # is decoded, and the next one waits
            with ThreadPoolExecutor(2) as pool:
                second = pool.submit(lambda: client.completions.create(**asked, max_tokens=3))
                while not waiting():
                    time.sleep(0.01)
                with pytest.raises(openai.RateLimitError, match="1 texts are waiting, and at most 1 may") as found:
                    client.completions.create(**asked, max_tokens=3)
                assert int(found.value.response.headers["retry-after"]) >= 1
                patient = client.with_options(max_retries=5)
                third = pool.submit(lambda: patient.completions.create(**asked, max_tokens=3))
                while made.said().count("/v1/completions 429") < 2:
                    time.sleep(0.01)
                first.close()
                texts = {one.result().choices[0].text for one in (second, third)}
        assert len(texts) == 1
        with pytest.raises(openai.InternalServerError, match="not finished within 3 seconds") as late:
            client.completions.create(**asked, max_tokens=2000, n=16)
        assert late.value.status_code == 504
        made.process.send_signal(signal.SIGINT)
        assert made.process.wait(30) == 130  # as every command that is interrupted
        assert "Traceback" not in made.said()
