"""The fast twin of `ModelSteps`: the same logits, with everything that can be done once done once.

A step of decoding moves one token through the decoder. The arithmetic is small, so what surrounds it decides: this file
runs the layers as a plain loop over prepared matrices. What is prepared, and why it changes nothing but the time:

* query, key and value are one matrix, and 1/√d is multiplied into the query's part of it;
* a matrix is stored in the order in which it is read: turned for one row, in oneDNN's blocked layout for several;
* the beams of a sentence share its keys and values. Each beam looks at all that any beam of its sentence wrote, and a
  mask hides what is not its own past. When beams change places only the mask moves, never the cache, and now and then
  what no beam sees any more is dropped;
* the beams also share the source: they are several queries to one memory, which is not copied for each of them;
* a single short source is multiplied into the cross-attention's matrices: x W_q Kᵀ becomes x A with A = W_q Kᵀ, and
  likewise behind the softmax, which is smaller than W_q as long as heads × source length is below the model width.

Prompts and sources are read by the model itself. The matrices are in prepared.py.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.decoding.prepared import Layer, Matrix, norm_of
from clearhead.decoding.steps import ModelSteps, Steps, left_pad
from clearhead.model import DecoderOnly, EncoderDecoder, KVCache, fused_attention
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.decoder import DecoderLayer
from clearhead.model.feedforward import FUSED
from clearhead.model.positions import alibi_slopes, rotate

TIDY_EVERY = 16  # steps between two looks at what no beam sees any more


class Engine:
    """A model prepared for decoding. What it cannot prepare (another attention, a 16-bit model) it leaves alone."""

    def __init__(self, model: EncoderDecoder | DecoderOnly) -> None:
        self.model, self.config = model, model.config
        weight = model.embedding.weight
        layers = [layer for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]
        attentions = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
        self.able = (
            weight.device.type == "cpu"
            and weight.dtype in (torch.float32, torch.float64)
            and all(attention.attend is fused_attention for attention in attentions)
        )
        if self.able:
            with torch.inference_mode():
                self.layers = [Layer.of(layer, 1 / math.sqrt(self.config.d_head)) for layer in layers]
                bias = model.output.bias
                self.head = Matrix(
                    model.output.matrix(model.embedding).detach(), None if bias is None else bias.detach()
                )
                norm, embedding_norm = model.decoder.norm, model.embedding.norm
                self.norm = None if norm is None else norm_of(norm)
                self.embedding_norm = None if embedding_norm is None else norm_of(embedding_norm)
                self.slopes = alibi_slopes(self.config.heads).to(weight.dtype)

    def steps(self, source: Tensor | None = None, padding: Tensor | None = None) -> Steps:
        """Decoding steps for a batch of sources, or for prompts."""
        if not self.able:
            return ModelSteps(self.model, source, padding)
        return EngineSteps(self, source, padding)


class Memory:
    """The source of each sentence as one layer's cross-attention sees it."""

    def __init__(self, layer: Layer, memory: Tensor, padding: Tensor | None, heads: int, groups: int) -> None:
        assert layer.cross_memory is not None
        assert layer.cross_query is not None
        assert layer.cross_out is not None
        batch, length, width = memory.shape
        self.heads, self.groups, self.layer = heads, groups, layer
        both = layer.cross_memory(memory.flatten(0, 1)).view(batch, length, 2, groups, width // heads)
        self.keys = both[:, :, 0].permute(0, 2, 3, 1).contiguous()  # (B, G, d, T): the order in which it is read
        self.values = both[:, :, 1].transpose(1, 2).contiguous()  # (B, G, T, d)
        self.hidden = None  # (B, 1, 1, T): −∞ at padding
        if padding is not None:
            self.hidden = torch.zeros(batch, 1, 1, length, dtype=memory.dtype)
            self.hidden.masked_fill_(~padding[:, None, None], -math.inf)
        self.before: Matrix | None = None
        if batch == 1 and padding is None and heads * length <= width:
            self._absorb(width)

    def _absorb(self, width: int) -> None:
        """x W_q Kᵀ as one matrix, and V W_o as another; rows of each: head by head, source token by source token."""
        query, out = self.layer.cross_query, self.layer.cross_out
        assert query is not None
        assert out is not None
        shared = self.heads // self.groups
        shown = (self.keys.transpose(2, 3), self.values)
        keys, values = (one[0].repeat_interleave(shared, 0) for one in shown)  # (H, T, d)
        split = (self.heads, width // self.heads)
        looking = torch.bmm(keys, query.weight.view(*split, width)).flatten(0, 1)  # (H·T, D)
        bias = None if query.bias is None else torch.bmm(keys, query.bias.view(*split, 1)).flatten()
        mixing = torch.bmm(values, out.weight.t().reshape(*split, width)).flatten(0, 1)  # (H·T, D)
        self.before, self.after = Matrix(looking, bias), Matrix(mixing.t(), out.bias)
        self.after.turned = mixing

    def attend(self, x: Tensor, y: Tensor, width: int) -> Tensor:
        """y + cross-attention of x (R, D), each `width` rows of which share a source."""
        layer, (batch, groups, size, length) = self.layer, self.keys.shape
        if self.before is not None:
            weights = self.before(x).view(-1, self.heads, length).softmax(-1)
            return self.after.plus(weights.view(-1, self.heads * length), y)
        assert layer.cross_query is not None
        assert layer.cross_out is not None
        q = by_group(layer.cross_query(x), batch, width, groups, size)
        scores = torch.bmm(q, self.keys.flatten(0, 1))
        if self.hidden is not None:
            scores.view(batch, groups, -1, length).add_(self.hidden)
        context = torch.bmm(scores.softmax(-1), self.values.flatten(0, 1))
        return layer.cross_out.plus(by_row(context, batch, width, groups), y)

    def keep(self, sentences: Tensor) -> None:
        self.keys, self.values = self.keys[sentences], self.values[sentences]
        if self.hidden is not None:
            self.hidden = self.hidden[sentences]


def by_group(x: Tensor, batch: int, width: int, groups: int, size: int) -> Tensor:
    """(B·k, H·d) -> (B·G, k·H/G, d): the queries that meet the same keys, together."""
    if width == 1:
        return x.reshape(batch * groups, -1, size)
    return x.unflatten(0, (batch, width)).unflatten(2, (groups, -1)).transpose(1, 2).reshape(batch * groups, -1, size)


def by_row(context: Tensor, batch: int, width: int, groups: int) -> Tensor:
    """The way back: (B·G, k·H/G, d) -> (B·k, H·d)."""
    if width == 1:
        return context.view(batch, -1)
    return context.view(batch, groups, width, -1).transpose(1, 2).reshape(batch * width, -1)


class EngineSteps:
    """Decoding steps on prepared matrices; see `Steps` for what the methods promise."""

    def __init__(self, engine: Engine, source: Tensor | None, source_padding: Tensor | None) -> None:
        self.engine, self.config, model = engine, engine.config, engine.model
        self.rows, self.width = 0, 1
        self.source_padding = source_padding
        self.memory: Tensor | None = None
        self.memories: list[Memory] = []
        if isinstance(model, EncoderDecoder):
            self.memory = ModelSteps(model, source, source_padding).memory
            assert self.memory is not None
            sizes = (self.config.heads, self.config.groups)
            self.memories = [Memory(layer, self.memory, source_padding, *sizes) for layer in engine.layers]
        self.cache = torch.empty(0)  # keys and values of all layers, (L, 2, B, G, capacity, d)
        self.filled = 0  # keys in the cache; a step adds one for each of the `width` rows of a sentence
        self.length = 0  # tokens in each row, padding included
        self.pads: Tensor | None = None  # (B,): how many of them are padding; None: none anywhere
        self.hidden: Tensor | None = None  # (B, k, filled): −∞ at padding, and at what other beams wrote
        self.slots = torch.empty(1, 0, dtype=torch.long)  # (1 or B, filled): the place of each key in its row

    # ---- reading prompts -------------------------------------------------------------------------------------------

    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        config, model = self.config, self.engine.model
        tokens, padding = left_pad(prompts)
        self.rows, length = tokens.shape
        shape = (len(self.engine.layers), 2, self.rows, config.groups, max(64, 2 * length), config.d_head)
        self.cache = model.embedding.weight.new_empty(shape)
        if length == 1:
            return self.step(tokens[:, 0])
        real = None if bool(padding.all()) else padding
        cache = KVCache(config, self.rows, length)
        if isinstance(model, EncoderDecoder):
            assert self.memory is not None
            states = model.decode(tokens, self.memory, self.source_padding, real, cache)
        else:
            states = model.hidden(tokens, real, cache=cache)
        for layer, room in zip(cache.self_attention, self.cache, strict=True):
            room[0, :, :, :length], room[1, :, :, :length] = layer.all()
        self.filled = self.length = length
        self.slots = torch.arange(length)[None]
        if real is not None:
            self.pads = (~real).sum(-1)
            self.hidden = torch.zeros(self.rows, 1, length, dtype=states.dtype).masked_fill_(~real[:, None], -math.inf)
        return self.engine.head(states[:, -1])

    # ---- one token -------------------------------------------------------------------------------------------------

    def step(self, tokens: Tensor) -> Tensor:
        engine, config = self.engine, self.config
        self._make_room()
        x = self._embed(tokens)  # (R, D)
        bias = self._bias()
        rotation = self._rotation(x)
        pre = config.norm.placement == "pre"
        # views of the cache for all layers at once: a view costs as much as a small product
        seen = self.cache[..., : self.filled, :].flatten(2, 3)  # (L, 2, B·G, filled, d)
        keys, values = seen[:, 0].transpose(2, 3).unbind(0), seen[:, 1].unbind(0)
        fresh = self.cache[..., self.filled - self.width : self.filled, :].unbind(0)  # (2, B, G, k, d) each
        for number, layer in enumerate(engine.layers):
            y = layer.self_norm(x) if pre else x
            context = self._attend(layer, y, (fresh[number], keys[number], values[number]), bias, rotation)
            x = layer.self_out.plus(context, x)
            x = x if pre else layer.self_norm(x)
            if self.memories:
                assert layer.cross_norm is not None
                y = layer.cross_norm(x) if pre else x
                x = self.memories[number].attend(y, x, self.width)
                x = x if pre else layer.cross_norm(x)
            y = layer.feed_forward_norm(x) if pre else x
            x = layer.outer.plus(self._bend(layer.inner, y), x)
            x = x if pre else layer.feed_forward_norm(x)
        return engine.head(x if engine.norm is None else engine.norm(x))

    def _attend(
        self,
        layer: Layer,
        x: Tensor,
        places: tuple[Tensor, Tensor, Tensor],  # of the cache: what is new, all keys (turned), all values
        bias: Tensor | None,
        rotation: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """Self-attention of the new tokens to everything before them, and to themselves: (R, D) -> (R, H·d)."""
        config, width = self.config, self.width
        heads, groups, size = config.heads, config.groups, config.d_head
        batch, queries = self.rows // width, heads * size
        made = layer.self_in(x)  # (R, (H + 2G)·d)
        if rotation is not None:
            turning = queries + groups * size
            turned = rotate(made[:, :turning].view(-1, heads + groups, 1, size), *rotation, config.positions.layout)
            made[:, :turning] = turned.view(-1, turning)
        fresh, keys, values = places
        fresh.copy_(made[:, queries:].view(batch, width, 2, groups, size).permute(2, 0, 3, 1, 4))
        scores = torch.bmm(by_group(made[:, :queries], batch, width, groups, size), keys)  # (B·G, k·H/G, filled)
        if bias is not None:
            scores.view(batch, groups, width, -1, self.filled).add_(bias)
        return by_row(torch.bmm(scores.softmax(-1), values), batch, width, groups)

    def _bend(self, inner: Matrix, x: Tensor) -> Tensor:
        kind = self.config.activation
        if kind == "relu":
            return inner(x, relu=True)
        if kind == "swiglu":
            gate, value = inner(x).chunk(2, dim=-1)
            return F.silu(gate) * value
        return FUSED[kind](inner(x))

    def _embed(self, tokens: Tensor) -> Tensor:
        embedding, weight = self.engine.model.embedding, self.engine.model.embedding.weight
        x = F.embedding(tokens, weight)
        if embedding.positions is not None:
            place = embedding.positions(self._places(), self.length, x)[:, 0]  # (1 or R, D)
            x = torch.add(place, x, alpha=embedding.scale)
        elif embedding.scale != 1:
            x = x * embedding.scale
        return x if self.engine.embedding_norm is None else self.engine.embedding_norm(x)

    def _places(self) -> Tensor:
        """The position of the newest token, (1, 1) or (R, 1): padding does not count."""
        now = torch.tensor([[self.length - 1]])
        return now if self.pads is None else (now - self.pads[:, None]).repeat_interleave(self.width, 0)

    def _rotation(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        rotary = self.engine.model.decoder.lookout.rotary
        return None if rotary is None else rotary(self._places(), self.length, x)

    def _bias(self) -> Tensor | None:
        """What is added to the scores: (B, G, k, H/G, filled), or less where it is the same for all."""
        config, bias = self.config, None
        if self.hidden is not None:
            bias = self.hidden[:, None, :, None, :]
        reach = config.window or self.length
        if reach >= self.length and config.positions.kind != "alibi":
            return bias
        age = (self.length - 1 - self.slots)[:, None, None, None]  # (1 or B, 1, 1, 1, filled)
        if reach < self.length:
            far = torch.zeros(age.shape, dtype=self.engine.slopes.dtype).masked_fill_(age >= reach, -math.inf)
            bias = far if bias is None else bias + far
        if config.positions.kind == "alibi":
            sloped = -self.engine.slopes.view(config.groups, 1, -1, 1) * age
            bias = sloped if bias is None else bias + sloped
        return bias

    def _make_room(self) -> None:
        """Count in the tokens of this step: each row sees its own, not those of the other beams."""
        width, before = self.width, self.filled
        self.length += 1
        self.filled += width
        self.slots = torch.cat((self.slots, self.slots.new_full((len(self.slots), width), self.length - 1)), dim=1)
        if self.hidden is not None:
            own = torch.full((width, width), -math.inf, dtype=self.hidden.dtype).fill_diagonal_(0)
            self.hidden = torch.cat((self.hidden, own.expand(len(self.hidden), -1, -1)), dim=2)
        if self.filled > self.cache.size(4):
            room = self.cache.new_empty(*self.cache.shape[:4], 2 * self.filled, self.cache.size(5))
            room[..., :before, :] = self.cache[..., :before, :]
            self.cache = room

    # ---- rows come and go ------------------------------------------------------------------------------------------

    def widen(self, width: int) -> None:
        """Beams of one sentence: they share what is in the cache, and from now on each writes its own."""
        self.rows, self.width = self.rows * width, width
        if self.hidden is not None:
            self.hidden = self.hidden.expand(-1, width, -1)
        elif width > 1:
            batch = self.rows // width
            self.hidden = torch.zeros(batch, width, self.filled, dtype=self.engine.slopes.dtype)

    def select(self, rows: Tensor) -> None:
        width, before = self.width, self.rows // self.width
        beams = rows.view(-1, width)
        sentences = beams[:, 0] // width
        self.rows = rows.numel()
        if self.hidden is not None:
            within = (beams % width)[..., None].expand(-1, -1, self.filled)
            self.hidden = self.hidden[sentences].gather(1, within)
        if width > 1 and self.length % TIDY_EVERY == 0:
            self._tidy(sentences)
        elif sentences.numel() != before or not torch.equal(sentences, torch.arange(before)):
            self.cache = self.cache[:, :, sentences]
            self.slots = self.slots[sentences] if len(self.slots) > 1 else self.slots
        else:
            return
        self.pads = None if self.pads is None else self.pads[sentences]
        for memory in self.memories:
            memory.keep(sentences)

    def _tidy(self, sentences: Tensor) -> None:
        """Drop the keys that no beam of their sentence sees any more: lines of descent that have died out."""
        assert self.hidden is not None
        seen = (self.hidden > -math.inf).any(1)  # (B, filled)
        most = int(seen.sum(1).max())
        order = torch.argsort(~seen, dim=1, stable=True)[:, :most]  # those seen come first, in their order
        self.hidden = self.hidden.gather(2, order[:, None].expand(-1, self.width, -1))
        self.slots = self.slots[sentences if len(self.slots) > 1 else sentences * 0].gather(1, order)
        layers, two, _, groups, _, size = self.cache.shape
        room = self.cache.new_empty(layers, two, len(sentences), groups, most + 64 * self.width, size)
        index = order[:, None, :, None].expand(-1, groups, -1, size)
        for old, new in zip(self.cache.flatten(0, 1), room.flatten(0, 1), strict=True):
            torch.gather(old[sentences], 2, index, out=new[:, :, :most])
        self.cache, self.filled = room, most
