"""Causes that lie in decoding: offsets, contents and owners of a cache, and the loop that generates."""

from clearhead.doctor.causes import Facts, Known
from clearhead.doctor.finding import Cause

STEPWISE = ("cache", "generate", "length")


def failed(facts: Facts) -> set[str]:
    """The ways of feeding the cache that failed, where nothing else explains it."""
    if facts.none("future.visible", "prefix.differs", "batch.coupled", "mode.random", "mode.remembers"):
        return set(facts.of("cache.differs", "failed", []))
    return set()


STEPS = {"one by one", "a prompt, then one by one"}


def looked(facts: Facts) -> str:
    """Where a step first goes wrong: in what is kept, in where it is, or in the mask; empty where it was not seen."""
    found = facts.of("cache.differs", "looked") or {}
    if not found or not failed(facts) & {"one by one", "in chunks of three"}:
        return ""
    kept = {found["keys"], found["values"]}
    if not found["query"] and found["first"]:
        return "place"
    if kept & {"order", "fewer", "more"}:
        # a mask that hides too much, or a window that is cut elsewhere, leaves keys out as well
        return "contents" if kept & {"order"} or not facts.of("cache.differs", "window") else "window"
    if kept == {"same"} and found["query"]:
        # as many keys as there should be, and other weights: what is added to the scores belongs to other places
        return "bias" if found.get("more") == 0 and found.get("weighed") is False else "mask"
    if not found["query"]:
        return "place" if found["first"] else "mask"
    # the query is right, and keys or values are not: kept wrong, or (keys alone) turned wrong
    return "rotation" if found["values"] == "same" else "contents"


def offset(facts: Facts) -> float:
    if shared(facts) > 0.9:
        return 0.3
    if looked(facts):
        return {"place": 0.97, "bias": 0.96, "rotation": 0.85, "contents": 0.5, "window": 0.5}.get(looked(facts), 0.2)
    return 0.9 if failed(facts) & STEPS else 0.5 if failed(facts) else 0.0


def contents(facts: Facts) -> float:
    if looked(facts):
        if facts.of("cache.differs", "looked", {}).get("order") and failed(facts) == {"in chunks of three"}:
            return 0.96  # keys and values are kept together, in an order that a mask of several tokens does not know
        return {"contents": 0.97, "rotation": 0.7, "place": 0.6, "window": 0.9}.get(looked(facts), 0.3)
    return 0.8 if failed(facts) & STEPS else 0.0


def rotation(facts: Facts) -> float:
    if looked(facts):
        return {"rotation": 0.97, "place": 0.7}.get(looked(facts), 0.1)
    return 0.75 if failed(facts) & STEPS else 0.0


def flag(facts: Facts) -> float:
    if facts.of("cache.differs", "causal_flag"):
        return 0.97
    if looked(facts):
        return 0.95 if looked(facts) == "mask" else 0.2
    return 0.85 if failed(facts) & STEPS and "at once" not in failed(facts) else 0.0


def chunk(facts: Facts) -> float:
    if failed(facts) == {"in chunks of three"}:
        return 0.97
    return 0.72 if "in chunks of three" in failed(facts) and "at once" not in failed(facts) else 0.0


def shared(facts: Facts) -> float:
    if facts.has("generate.remembers") and facts.none("mode.remembers"):
        return 0.95
    several = {"two requests in turns", "a second request"} & failed(facts)
    # the very first request is fed one by one: nothing can be left over from another
    return (0.96 if "one by one" not in failed(facts) else 0.2) if several else 0.0


def reorder(facts: Facts) -> float:
    if facts.of("padded.cache", "reordered"):
        return 0.97
    return 0.97 if failed(facts) == {"rows reordered"} else 0.0


def step(facts: Facts) -> float:
    if facts.has("generate.changed") or facts.has("generate.count"):
        return 0.95
    greedy = facts.has("generate.not-greedy") or facts.has("generate.prompt")
    if greedy and facts.none("cache.differs", "future.visible", "prefix.differs"):
        return 0.95
    return 0.1 if greedy else 0.0


def forgotten(facts: Facts) -> float:
    if facts.of("padded.cache", "reordered"):
        return 0.3
    if not (facts.has("padded.generate") or facts.has("padded.cache")):
        return 0.0
    # what goes wrong without padding too is no matter of padding
    return 0.95 if facts.none("cache.differs", "generate.not-greedy", "batch.coupled", "padding.content") else 0.3


def cropped(facts: Facts) -> float:
    return (0.97 if facts.of("context.crop", "how") == "first" else 0.7) if facts.has("context.crop") else 0.0


def edge(facts: Facts) -> float:
    return 0.9 if facts.has("context.generate") else 0.8 if facts.has("context.short") else 0.0


def past_the_table(facts: Facts) -> float:
    return 0.9 if facts.has("context.wraps") else 0.6 if facts.has("context.cropped") else 0.0


CAUSES: list[Known] = [
    (
        Cause(
            "cache-offset",
            "positions of cached tokens are off",
            "positions = torch.arange(S)",
            "positions = torch.arange(cache.length, cache.length + S)",
            "After the prompt the offset is forgotten, counted twice, or applied before it grew.",
        ),
        offset,
        STEPWISE,
    ),
    (
        Cause(
            "cache-contents",
            "the cache holds the wrong keys or values",
            "self.keys = keys",
            "self.keys = torch.cat([self.keys, keys], dim=2)",
            "Something was overwritten, dropped or put in another order.",
        ),
        contents,
        STEPWISE,
    ),
    (
        Cause(
            "cache-rotation",
            "cached keys are rotated twice or not at all",
            "cache.append(k); k = rotate(cache.k)",
            "k = rotate(k); cache.append(k)",
            "Keys must carry the rotation of the position they were read at.",
        ),
        rotation,
        STEPWISE,
    ),
    (
        Cause(
            "causal-flag-cached",
            "the mask of a new query is aligned at the first key, as is_causal does",
            "scaled_dot_product_attention(q, k, v, is_causal=True)",
            "scaled_dot_product_attention(q, k, v, attn_mask=mask)   # aligned at the bottom right",
            "The flag's triangle starts at the top left: a single new query sees the first key only.",
        ),
        flag,
        STEPWISE,
    ),
    (
        Cause(
            "chunk-mask",
            "tokens fed together see each other's future",
            "mask = None if cache else causal(S)",
            "mask = causal(S, T)[T - S :]",
            "One token at a time needs no mask; several at a time do.",
        ),
        chunk,
        STEPWISE,
    ),
    (
        Cause(
            "cache-shared",
            "requests share a cache",
            "def __init__(self, layers={}): ...",
            "self.layers = {}",
            "A mutable default, a class attribute or a buffer of the model outlives the request.",
        ),
        shared,
        STEPWISE,
    ),
    (
        Cause(
            "reorder-skipped",
            "the cache is not reordered with the beams",
            "return cache",
            "return [t[rows] for t in cache]",
            "A hypothesis goes on with another one's past.",
        ),
        reorder,
        (*STEPWISE, "padded"),
    ),
    (
        Cause(
            "generate-step",
            "the loop reads or feeds the wrong token",
            "logits[:, 0].argmax(-1)",
            "logits[:, -1].argmax(-1)",
            "The next token follows from the last position, and must itself be fed next.",
        ),
        step,
        STEPWISE,
    ),
    (
        Cause(
            "generate-padding",
            "generation forgets which tokens are padding",
            "memory = self.encode(source)",
            "memory = self.encode(source, source_real)",
            "In a batch of different lengths the shorter ones are continued from their padding.",
        ),
        forgotten,
        (*STEPWISE, "padded"),
    ),
    (
        Cause(
            "crop-first",
            "a long prompt loses its end",
            "tokens[:, :block_size]",
            "tokens[:, -block_size:]",
            "The next token follows from the last ones; from the first ones it is the same again and again.",
        ),
        cropped,
        (*STEPWISE, "context"),
    ),
    (
        Cause(
            "context-edge",
            "the last place of the context cannot be used",
            "assert tokens.size(1) < block_size",
            "assert tokens.size(1) <= block_size",
            "A limit or a table is off by one, or a step too many is run at the end.",
        ),
        edge,
        (*STEPWISE, "context"),
    ),
    (
        Cause(
            "position-reused",
            "beyond the context positions are used again",
            "self.position(torch.arange(S) % max_length)",
            "refuse more than max_length tokens, or crop them",
            "Tokens that are far apart look like neighbours or like one; nothing says so.",
        ),
        past_the_table,
        ("context", "length"),
    ),
]
