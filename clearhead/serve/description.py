"""The API as an OpenAPI description, made of the same dataclasses that requests are checked against."""

from collections.abc import Mapping, Sequence
from typing import Any

import clearhead
from clearhead.serve.fields import schema
from clearhead.serve.requests import CompletionRequest, EmbeddingRequest, PredictRequest, TranslateRequest

VERBS = ("completions", "embeddings", "translate", "predict")
TEXT, WHOLE, NUMBER, TRUTH = ({"type": kind} for kind in ("string", "integer", "number", "boolean"))


def table(**fields: Any) -> dict[str, Any]:
    """An object that has exactly these."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def many(item: Any) -> dict[str, Any]:
    return {"type": "array", "items": item}


def maybe(kind: Any) -> dict[str, Any]:
    return {"anyOf": [kind, {"type": "null"}]}


MODEL = table(id=TEXT, object=TEXT, created=WHOLE, owned_by=TEXT, can=many(TEXT), checkpoint=TEXT)
USED = table(prompt_tokens=WHOLE, total_tokens=WHOLE)
WRITTEN = table(prompt_tokens=WHOLE, total_tokens=WHOLE, completion_tokens=WHOLE)
LOG_PROBS = table(
    tokens=many(TEXT),
    token_logprobs=many(NUMBER),
    top_logprobs=many({"type": "object", "additionalProperties": NUMBER}),
    text_offset=many(WHOLE),
)
FINISH = maybe({"enum": ["stop", "length"]})
CHOICE = table(text=TEXT, index=WHOLE, logprobs=maybe(LOG_PROBS), finish_reason=FINISH)
COMPLETION = table(
    id=TEXT, object=TEXT, created=WHOLE, model=TEXT, system_fingerprint=TEXT, choices=many(CHOICE), usage=WRITTEN
)
VECTOR = table(object=TEXT, index=WHOLE, embedding={"anyOf": [many(NUMBER), TEXT]})
EMBEDDINGS = table(object=TEXT, data=many(VECTOR), model=TEXT, usage=USED)
ONE = table(text=TEXT, score=NUMBER, log_prob=NUMBER, finished=TRUTH)
LINK = table(target=WHOLE, source=WHOLE, weight=NUMBER)
ALIGNED = table(translations=many(ONE), source_cut=TRUTH)
ALIGNED["properties"]["alignment"] = table(layer=WHOLE, source=many(TEXT), target=many(TEXT), links=many(LINK))
TRANSLATED = table(model=TEXT, results=many(ALIGNED), usage=WRITTEN)
LABELLED = table(label=TEXT, probabilities={"type": "object", "additionalProperties": NUMBER}, text_cut=TRUTH)
PREDICTED = table(model=TEXT, results=many(LABELLED), usage=USED)
ERROR = table(error=table(message=TEXT, type=TEXT, param=maybe(TEXT), code=maybe(TEXT)))
HEALTH = table(status={"enum": ["ok", "stopping"]}, waiting=WHOLE)
REFUSED = {
    "400": "A mistake in the request, named in one line.",
    "401": "The bearer token is missing or wrong.",
    "403": "Another host, origin or site.",
    "404": "No such model or path.",
    "405": "Another method.",
    "408": "The body did not come in time.",
    "413": "A body of more than 64 KB.",
    "415": "Another type than application/json.",
    "429": "Too many texts wait; Retry-After says when to come again.",
    "500": "Something broke; the server's terminal says what.",
    "503": "The server is about to stop.",
    "504": "Not finished within the deadline.",
}


def answered(content: Any, **more: Any) -> dict[str, Any]:
    """The answers of a path: the good one, and every refusal."""
    good = {"description": "The answer.", "content": {"application/json": {"schema": content}, **more}}
    refusals = {
        status: {"description": says, "content": {"application/json": {"schema": ERROR}}}
        for status, says in REFUSED.items()
    }
    return {"200": good, **refusals}


def posted(cls: Any, says: str, able: Sequence[str], content: Any, **more: Any) -> dict[str, Any]:
    asked = schema(cls)
    if able:  # whoever reads the description learns the names of the models that can do it
        may_be_left_out = "model" not in asked.get("required", ())
        asked["properties"]["model"]["enum"] = [*able, *([None] if may_be_left_out else [])]
    body = {"required": True, "content": {"application/json": {"schema": asked}}}
    return {"post": {"summary": says, "requestBody": body, "responses": answered(content, **more)}}


def got(says: str, content: Any) -> dict[str, Any]:
    return {"get": {"summary": says, "responses": answered(content)}}


def describe(with_token: bool, can: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The whole description, for models by name and what each can do."""
    able = {verb: [name for name, verbs in can.items() if verb in verbs] for verb in VERBS}
    # each event; its data is a completion without usage (or the usage alone), as JSON, and at the end [DONE]
    events = {"text/event-stream": {"schema": {"type": "object", "properties": {"data": TEXT}, "required": ["data"]}}}
    health = got("Whether requests are taken.", HEALTH)
    health["get"]["responses"]["503"]["content"]["application/json"]["schema"] = {"anyOf": [HEALTH, ERROR]}
    name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Clearhead", "version": clearhead.__version__, "description": "Trained models, served."},
        "paths": {
            "/v1/models": got("What is served.", table(object=TEXT, data=many(MODEL))),
            "/v1/models/{model}": {"parameters": [name], **got("One model.", MODEL)},
            "/v1/completions": posted(CompletionRequest, "Continue texts.", able["completions"], COMPLETION, **events),
            "/v1/embeddings": posted(EmbeddingRequest, "Texts as vectors of length 1.", able["embeddings"], EMBEDDINGS),
            "/translate": posted(TranslateRequest, "Translate texts.", able["translate"], TRANSLATED),
            "/predict": posted(PredictRequest, "Labels of texts.", able["predict"], PREDICTED),
            "/healthz": health,
        },
    }
    if with_token:
        made["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        made["security"] = [{"token": []}]
    return made
