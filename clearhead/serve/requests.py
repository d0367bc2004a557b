# ruff: noqa: RUF009 (the fields are made by `asked`)
"""What may be asked. The first two are OpenAI's, key by key; what they have and a small model has not is refused by
name, never ignored. Settings that are not given are those of the run, as everywhere in Clearhead."""

from dataclasses import dataclass
from typing import Literal

from clearhead.ranges import MOST
from clearhead.serve.fields import asked

MOST_TEXTS = 64  # in one request
MOST_SAMPLES = 16
MOST_BEAMS = 16
Ids = tuple[int, ...]


@dataclass(frozen=True)
class StreamOptions:
    """What a stream tells besides the text."""

    include_usage: bool | None = asked("A last event with the tokens used.", None)
    include_obfuscation: Literal[False] | None = asked("Not there.", None)


@dataclass(frozen=True)
class CompletionRequest:
    """POST /v1/completions"""

    model: str = asked("A model of /v1/models.")
    prompt: str | tuple[str, ...] | Ids | tuple[Ids, ...] = asked(
        "Text to go on from, or token ids; several are continued side by side.", "", least=0, most=2**31 - 1,
        count=(1, 65536), example="Once upon a time",
    )  # fmt: skip
    max_tokens: int | None = asked("The most tokens to write.", None, least=1, most=1_000_000, example=16)
    temperature: float | None = asked("0: always the likeliest token.", None, least=0, most=100, example=0.8)
    top_p: float | None = asked("Only the likeliest tokens with this share.", None, least=1e-9, most=1)
    top_k: int | None = asked("Only so many of the likeliest tokens; 0: all.", None, least=0, most=2**31 - 1)
    min_p: float | None = asked("Only tokens this many times as likely as the likeliest.", None, least=0, most=1)
    n: int | None = asked("So many continuations of each prompt.", None, least=1, most=MOST_SAMPLES)
    seed: int | None = asked("The same seed gives the same text.", None, least=-MOST, most=MOST, example=3)
    stop: str | tuple[str, ...] | None = asked("The text ends before any of these.", None, count=(0, 4))
    logprobs: int | None = asked("Log-probabilities, and so many of the likeliest tokens.", None, least=0, most=5)
    stream: bool | None = asked("Piece by piece, as server-sent events.", None)
    stream_options: StreamOptions | None = asked("What a stream tells besides the text.", None)
    user: str | None = asked("Ignored.", None)
    echo: Literal[False] | None = asked("Not there: the prompt is not repeated.", None)
    best_of: int | None = asked("Not there.", None, least=1, most=1)
    suffix: Literal[""] | None = asked("Not there.", None)
    presence_penalty: float | None = asked("Not there.", None, least=0, most=0)
    frequency_penalty: float | None = asked("Not there.", None, least=0, most=0)
    logit_bias: dict | None = asked("Not there.", None, count=(0, 0))


@dataclass(frozen=True)
class EmbeddingRequest:
    """POST /v1/embeddings"""

    model: str = asked("An encoder of /v1/models.")
    input: str | tuple[str, ...] = asked("A text, or several.", count=(1, MOST_TEXTS), example="A man eats.")
    encoding_format: Literal["float", "base64"] | None = asked("base64: float32, little endian.", None)
    dimensions: int | None = asked("Only the model's own width.", None, least=1, most=1_000_000)
    user: str | None = asked("Ignored.", None)


@dataclass(frozen=True)
class TranslateRequest:
    """POST /translate"""

    text: str | tuple[str, ...] = asked("A text, or several.", count=(1, MOST_TEXTS), example="3 mars 2029")
    model: str | None = asked("A model that translates; the first one unless given.", None)
    n_best: int = asked("So many translations of each text, best first.", 1, least=1, most=MOST_BEAMS)
    beam_size: int | None = asked("1: greedy search.", None, least=1, most=MOST_BEAMS)
    length_penalty: float | None = asked("Higher favours longer ones; 0: none.", None, least=-10, most=10)
    alignment: bool = asked("Which token of the source each token came from.", False)


@dataclass(frozen=True)
class PredictRequest:
    """POST /predict"""

    text: str | tuple[str, ...] = asked("A text, or several.", count=(1, MOST_TEXTS), example="a lovely film")
    second: str | tuple[str, ...] | None = asked("The other text, for a model of pairs.", None, count=(1, MOST_TEXTS))
    model: str | None = asked("A classifier; the first one unless given.", None)
