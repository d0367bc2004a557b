"""How writing, with and without a cache, usually goes wrong."""

from collections.abc import Mapping
from typing import Any

from clearhead.learn.exercise import Mistake

ENCODE = "model.encode(source, source_real)"
START = "torch.full_like(source[:, :1], bos)"
DECODE = "model.decode(target, memory, source_real)[:, -1]"
DONE = "(target == eos).any(1).all()"
ROWS = "target[:, 1:].tolist()"
CUT = "[row[: row.index(eos)] if eos in row else row for row in rows]"
ROW = "sinusoids(position + 1, memory.size(-1))[position]"
GROWN = "k, v = torch.cat((old_k, k), dim=2), torch.cat((old_v, v), dim=2)"
PADDING = "None if source_real is None else padding_mask(source_real)"
MEMORY = 'cache["memory", number] = keys_and_values(layer.cross_attention, memory)'
COUNT = 'cache["position"] = position + 1'
RECOMPUTED = """
@torch.no_grad()
def step(model, token, memory, source_real, cache):
    cache["tokens"] = torch.cat((cache.get("tokens", token[:, :0]), token), dim=1)
    return model.decode(cache["tokens"], memory, source_real)[:, -1:]
"""


def write(id: str, say: str, *changes: tuple[str, str], where: str = "") -> Mistake:
    return Mistake(id, "greedy", say, changes=changes, where=where)


def cached(id: str, say: str, *changes: tuple[str, str], where: str = "") -> Mistake:
    return Mistake(id, "step", say, changes=changes, where=where)


def kept_outside(findings: Mapping[str, dict[str, Any]]) -> float:
    return 0.9 if "cache.kept" in findings else 0.0


def costly(findings: Mapping[str, dict[str, Any]]) -> float:
    return 1.0 if "cost.grows" in findings else 0.0


MISTAKES = (
    write(
        "generate-step",
        "one position spoke every time, or one token was read: the last position of all that is written speaks",
        (DECODE, DECODE.replace("-1", "0")),
        where=r"decode\(",
    ),
    write(
        "generate-padding",
        "neither the encoder nor the decoder was told what is padding",
        (ENCODE, "model.encode(source)"),
        (DECODE, "model.decode(target, memory)[:, -1]"),
        where=r"code\(",
    ),
    write(
        "generate-padding",
        "the encoder was not told what is padding",
        (ENCODE, "model.encode(source)"),
        where=r"encode\(",
    ),
    write(
        "generate-padding",
        "the decoder was not told what is padding in the source",
        (DECODE, "model.decode(target, memory)[:, -1]"),
        where=r"decode\(",
    ),
    write(
        "stopped-by-first",
        "all rows stopped when the first one ended: each row has an end of its own",
        (DONE, "(target[0] == eos).any()"),
        where=r"eos",
    ),
    write(
        "stopped-early",
        "all rows stopped when one of them ended: go on until every row has",
        (DONE, "(target == eos).any()"),
        where=r"eos",
    ),
    write("past-eos", "rows go on behind their end: cut each one at its first eos", (CUT, "rows"), where=r"return"),
    write(
        "past-eos",
        "eos was taken out, but what was written behind it is still there: cut each row at its first eos",
        (CUT, "[[token for token in row if token != eos] for row in rows]"),
        where=r"eos",
    ),
    write(
        "past-eos",
        "eos was taken out, but what was written behind it is still there: cut each row at its first eos",
        (DONE, "(target[:, -1] == eos).all()"),
        (CUT, "[[token for token in row if token not in (bos, eos)] for row in rows]"),
        where=r"not in|!= ?eos",
    ),
    write(
        "past-eos",
        "the rows came back as they were written: bos goes, and each row ends before its first eos",
        (DONE, "(target[:, -1] == eos).all()"),
        (ROWS, "target.tolist()"),
        (CUT, "rows"),
        where=r"return",
    ),
    write(
        "eos-kept",
        "eos itself was returned with the row",
        (CUT, CUT.replace("row.index(eos)]", "row.index(eos) + 1]")),
        where=r"eos",
    ),
    write("bos-kept", "the start token was returned with the row", (ROWS, "target.tolist()"), where=r"tolist|return"),
    write(
        "start-token",
        "the target does not begin with bos",
        (START, "torch.full_like(source[:, :1], eos)"),
        where=r"full|eos|bos",
    ),
    write("start-token", "the target begins with 0, not with bos", (START, "torch.zeros_like(source[:, :1])")),
    write(
        "longest-off",
        "one token too few: `longest` tokens may be written",
        ("range(longest)", "range(longest - 1)"),
        where=r"longest",
    ),
    write(
        "longest-off",
        "one token too many: at most `longest` are written",
        ("range(longest)", "range(longest + 1)"),
        where=r"longest",
    ),
    write(
        "least-likely",
        "the least likely token was taken",
        ("logits.argmax(-1, keepdim=True)", "logits.argmin(-1, keepdim=True)"),
        where=r"argm",
    ),
    write(
        "sampled",
        "a token was drawn by chance: greedy takes the likeliest, always",
        ("logits.argmax(-1, keepdim=True)", "torch.multinomial(logits.softmax(-1), 1)"),
        where=r"multinomial|sample",
    ),
    write(
        "first-row-for-all",
        "the first row's token was written into all rows",
        ("logits.argmax(-1, keepdim=True)", "logits[:1].argmax(-1, keepdim=True).expand(len(logits), 1)"),
        where=r"argmax|item",
    ),
    write(
        "memory-skipped",
        "the decoder looked at the source's vectors: the encoder never ran",
        (ENCODE, "model.vectors(source)"),
        where=r"memory",
    ),
    cached(
        "cache-offset",
        "every token stands at position 0: count the steps in the cache",
        (ROW, "sinusoids(1, memory.size(-1))[0]"),
        where=r"sinusoids",
    ),
    cached(
        "cache-offset",
        "positions are one ahead: the first token stands at 0",
        (ROW, "sinusoids(position + 2, memory.size(-1))[position + 1]"),
        where=r"sinusoids",
    ),
    cached(
        "cache-offset",
        "positions count from the length of the source",
        (ROW, "sinusoids(position + memory.size(1) + 1, memory.size(-1))[-1]"),
        where=r"sinusoids",
    ),
    cached(
        "cache-offset",
        "the position stays where it is: it must grow with each step",
        (COUNT, 'cache["position"] = 1'),
        where=r"position|step|\+",
    ),
    cached(
        "cache-offset",
        "the position grows with every layer: it should grow once a step",
        (COUNT, 'cache["position"] = position + len(model.decoder.layers)'),
        where=r"\+= ?1|position|pos",
    ),
    cached(
        "cache-first-key",
        "the newest token sees only the first one: a causal mask for one query begins at key 0; here it needs none",
        (
            "partial(look, layer.self_attention, k=k, v=v)",
            "partial(look, layer.self_attention, k=k[:, :, :1], v=v[:, :, :1])",
        ),
        where=r"is_causal|mask",
    ),
    cached("positions-missing", "the token has no position", ("x + row.to(x)", "x"), where=r"embed"),
    cached(
        "embedding-unscaled",
        "the token's vector is not multiplied by √D",
        ("embed(token, model.embedding.weight)", "model.embedding(token)"),
        where=r"embed",
    ),
    cached(
        "cache-contents",
        "the newest token sees only itself: keys and values of earlier ones must be joined to its own",
        (GROWN, "pass"),
        where=r"cat|keys|cache",
    ),
    cached(
        "cache-contents",
        "keys of earlier tokens are kept, but their values are the newest one's",
        (GROWN, "k, v = torch.cat((old_k, k), dim=2), v.expand(-1, -1, position + 1, -1)"),
        where=r"cat|cache",
    ),
    cached(
        "cache-contents",
        "the newest token's own key and value are missing: it may look at itself",
        (GROWN, "k, v, new = old_k, old_v, (k, v)"),
        (
            "cache[number] = k, v",
            "cache[number] = (k, v) if not position else (torch.cat((k, new[0]), 2), torch.cat((v, new[1]), 2))",
        ),
        where=r"cat|cache",
    ),
    cached(
        "cache-contents",
        "keys and values changed places in the cache",
        ("cache[number] = k, v", "cache[number] = v, k"),
        where=r"cache",
    ),
    cached(
        "cache-axis",
        "keys and values were joined along the heads: tokens are dimension 2 of (B, H, n, d)",
        (GROWN, GROWN.replace("dim=2", "dim=1")),
        where=r"cat\(",
    ),
    cached(
        "cache-one-slot",
        "all layers share one slot of the cache: each layer has keys and values of its own",
        ("old_k, old_v = cache[number]", "old_k, old_v = cache[0]"),
        where=r"cache",
    ),
    cached(
        "cache-one-slot",
        "all layers append to one slot of the cache: each layer has keys and values of its own",
        (
            "        if position:\n            old_k, old_v = cache[number]",
            "        if 0 in cache:\n            old_k, old_v = cache[0]",
        ),
        (
            "        else:  # the memory stays as it is, so its keys and values are made once\n",
            "        if not position:\n",
        ),
        ("cache[number] = k, v", "cache[0] = k, v"),
        where=r"cache",
    ),
    cached(
        "cache-one-slot",
        "all layers share the memory's keys and values: each layer makes its own",
        (MEMORY, 'cache["memory", number] = keys_and_values(model.decoder.layers[0].cross_attention, memory)'),
        where=r"memory",
    ),
    Mistake(
        "cache-shared",
        "step",
        "the memory's keys and values outlive the request, so the next one reads the first one's source: use `cache`",
        changes=(
            (
                MEMORY,
                "layer.kept = layer.kept if hasattr(layer, 'kept') else keys_and_values(layer.cross_attention, memory)",
            ),
            ('k, v = cache["memory", number]', "k, v = layer.kept"),
        ),
        where=r"global|KEPT|kept|_cache|memory",
        fits=kept_outside,
    ),
    cached(
        "cache-shared",
        "keys and values are kept in the model: two requests that take turns read each other's text; keep them in "
        "`cache`",
        ("old_k, old_v = cache[number]", "old_k, old_v = layer.past"),
        ("cache[number] = k, v", "layer.past = k, v"),
        where=r"global|past|kept|_cache",
    ),
    cached(
        "cache-shared",
        "keys and values outlive the request: the next one goes on from the first one's text; keep them in `cache`",
        (
            'position = cache.setdefault("position", 0)',
            "cache = model.__dict__.setdefault('kept', {})\n    position = cache.setdefault('position', 0)",
        ),
        where=r"global|cache",
    ),
    cached(
        "cross-padding-missing",
        "the source's padding is seen",
        (PADDING, "None"),
        where=r"cross_attention|look",
    ),
    cached(
        "cross-reads-target",
        "cross-attention reads the newest token, not the memory",
        (MEMORY, 'cache["memory", number] = keys_and_values(layer.cross_attention, x)'),
        (", may_attend=memory_may_attend", ""),
        where=r"cross_attention",
    ),
    cached(
        "cross-missing",
        "the layers never look at the source",
        ("        x = layer.cross_attention_residual(x, sublayer)\n", ""),
        where=r"residual",
    ),
    cached(
        "residual-missing",
        "the feed-forward has no residual around it",
        ("layer.feed_forward_residual(x, layer.feed_forward)", "layer.feed_forward(x)"),
        where=r"feed_forward",
    ),
    cached(
        "sublayer-missing",
        "the feed-forward is left out",
        ("        x = layer.feed_forward_residual(x, layer.feed_forward)\n", ""),
    ),
    cached("head-missing", "these are states, not logits: the head is missing", ("x @ model.embedding.weight.T", "x")),
    cached(
        "layer-left-out",
        "only the first layer ran",
        ("enumerate(model.decoder.layers)", "enumerate(model.decoder.layers[:1])"),
        where=r"layers",
    ),
    Mistake(
        "cache-recomputed",
        "step",
        "right, but all earlier tokens are computed again at every step: keep their keys and values instead",
        text=RECOMPUTED,
        where=r"decode\(|decoder\(",
        fits=costly,
    ),
)
