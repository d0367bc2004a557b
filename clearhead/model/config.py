"""Every size and choice of a Transformer, in small frozen dataclasses. To look things up in, rather than to read first.

The defaults are the base model of "Attention Is All You Need" (section 3 and table 3). What the later families
(GPT-2, BERT, Llama, Marian) do otherwise is a field here, so each of them is a configuration, not another model.
Choices are checked on construction: an incompatible pair is refused with both values named.
"""

from dataclasses import dataclass, field
from typing import Literal

from clearhead.errors import require
from clearhead.ranges import require_numbers

MOST_LAYERS = 10_000  # ten times the deepest ever trained; more would be built for hours before memory runs out


@dataclass(frozen=True)
class Embedding:
    """How token ids become vectors."""

    scaled: bool = True  # times √d_model (section 3.4); GPT-2, BERT and Llama leave it out
    norm: bool = False  # normalise token + position, as BERT does
    segments: int = 0  # number of segment (token type) embeddings; BERT has 2

    def __post_init__(self) -> None:
        require_numbers(self, "embedding.")
        require(self.segments >= 0, f"embedding.segments must not be negative, not {self.segments}")


@dataclass(frozen=True)
class Scaling:
    """Rotary positions stretched after training, so that a longer text turns no further than a shorter one did."""

    kind: Literal["linear", "llama3"]  # linear: every frequency / factor; llama3: only the low ones (see positions.py)
    factor: float
    low: float = 1.0  # llama3: what turns fewer times than this in the old context is slowed by the whole factor …
    high: float = 4.0  # … and more often than this not at all
    context: int = 8192  # llama3: tokens of the old context

    def __post_init__(self) -> None:
        require_numbers(self, "positions.scaling.")
        require(self.factor >= 1, f"positions.scaling.factor must be at least 1, not {self.factor}")
        require(0 < self.low < self.high, f"positions.scaling needs 0 < low < high, found {self.low} and {self.high}")
        require(self.context > 0, f"positions.scaling.context must be positive, not {self.context}")


@dataclass(frozen=True)
class Positions:
    """How the model knows the order of its tokens."""

    kind: Literal["sinusoidal", "learned", "rope", "alibi", "none"] = "sinusoidal"
    # which two dimensions share a frequency: neighbours (2i, 2i+1) as in both papers, or i and i + width/2
    layout: Literal["interleaved", "split"] = "interleaved"
    base: float = 10_000.0  # wavelengths run from 2π to base·2π
    max_length: int | None = None  # rows of the learned table; other kinds have no limit
    start: int = 0  # the number of the first position of sinusoids; OpenNMT counts from 1, fairseq from 2
    scaling: Scaling | None = None  # of rotary positions

    def __post_init__(self) -> None:
        require_numbers(self, "positions.")
        sinusoidal, rotary = self.kind == "sinusoidal", self.kind == "rope"
        require(0 <= self.start < 1 << 31, f"positions.start must be from 0 to 2^31, not {self.start}")
        require(
            sinusoidal or not self.start, f"positions.start is for 'sinusoidal', not positions.kind = {self.kind!r}"
        )
        require(rotary or not self.scaling, f"positions.scaling is for 'rope', not positions.kind = {self.kind!r}")
        require(self.base > 1, f"positions.base must be above 1, not {self.base}")
        if self.kind == "learned":
            require(
                self.max_length is not None and self.max_length > 0,
                f"positions.kind = 'learned' needs positions.max_length, its number of rows; found {self.max_length}",
            )
        else:
            require(
                self.max_length is None,
                f"positions.kind = {self.kind!r} extends to any length: positions.max_length = {self.max_length} "
                "is only for 'learned'",
            )


@dataclass(frozen=True)
class Norm:
    """Which normalisation, and whether it comes before or after each sub-layer."""

    kind: Literal["layer", "rms"] = "layer"
    placement: Literal["pre", "post"] = "post"  # the paper: post. Nearly everyone since: pre
    epsilon: float = 1e-5
    final: bool | None = None  # one more norm after the stack; None: after pre-norm yes, after post-norm no

    def __post_init__(self) -> None:
        require_numbers(self, "norm.")
        require(self.epsilon > 0, f"norm.epsilon must be positive, not {self.epsilon}")
        if self.final is None:
            object.__setattr__(self, "final", self.placement == "pre")


@dataclass(frozen=True)
class Dropout:
    """Where units are dropped; the default is the paper's (section 5.4)."""

    residual: float = 0.1  # the output of each sub-layer, before it is added
    embedding: float = 0.1  # the sum of embeddings and positional encodings
    attention: float = 0.0  # the attention weights
    hidden: float = 0.0  # the inner layer of the feed-forward network

    def __post_init__(self) -> None:
        for name in ("residual", "embedding", "attention", "hidden"):
            rate = getattr(self, name)
            require(0 <= rate < 1, f"dropout.{name} must be at least 0 and below 1, not {rate}")


@dataclass(frozen=True)
class Head:
    """What is made of the last hidden states."""

    # vocabulary: next-token logits · masked: BERT's masked-token logits · tokens: `classes` logits for each token
    # pooled: one vector for each sequence, and `classes` logits from it if classes > 0 · none: the hidden states
    kind: Literal["vocabulary", "masked", "tokens", "pooled", "none"] = "vocabulary"
    tied: bool = True  # the matrix of the vocabulary logits is the embedding (section 3.4)
    bias: bool = False
    classes: int = 0

    def __post_init__(self) -> None:
        require_numbers(self, "head.")
        require(self.classes >= 0, f"head.classes must not be negative, not {self.classes}")


@dataclass(frozen=True)
class ModelConfig:
    """A whole Transformer. Letters as in the docs: D = d_model, H = heads, G = kv_heads, d = D/H, V = vocab_size."""

    vocab_size: int
    source_vocab_size: int | None = None  # an encoder-decoder's source has a vocabulary of its own; None: one for both
    kind: Literal["encoder-decoder", "decoder", "encoder"] = "encoder-decoder"
    d_model: int = 512
    heads: int = 8
    kv_heads: int | None = None  # grouped-query attention: H/G query heads share a key/value head; None: G = H
    head_dim: int | None = None  # d, where it is not D/H; then H heads together are wider or narrower than the model
    d_ff: int = 2048  # the paper's 4·D is a hyperparameter, not a law
    encoder_layers: int = 6
    decoder_layers: int = 6
    activation: Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu"] = "relu"
    bias: bool = True  # in all linear maps and layer norms
    qkv_bias: bool | None = None  # in the maps to query, key and value; None: as `bias` says
    qk_norm: bool = False  # normalise each head's queries and keys before they meet, as Qwen3 does
    window: int | None = None  # self-attention reaches this many positions, its own included; None: all
    embedding: Embedding = field(default_factory=Embedding)
    positions: Positions = field(default_factory=Positions)
    norm: Norm = field(default_factory=Norm)
    dropout: Dropout = field(default_factory=Dropout)
    head: Head = field(default_factory=Head)
    init: Literal["xavier", "gpt2"] = "xavier"  # see initialise.py
    kernels: Literal["plain", "fused"] = "fused"  # plain: the code as read; fused: its fast twin

    def __post_init__(self) -> None:
        require_numbers(self)
        if self.kind == "encoder":
            object.__setattr__(self, "decoder_layers", 0)
        if self.kind == "decoder":
            object.__setattr__(self, "encoder_layers", 0)
        for name in ("vocab_size", "d_model", "heads", "d_ff"):
            require(getattr(self, name) > 0, f"{name} must be positive, not {getattr(self, name)}")
        self._check_heads()
        self._check_kind()
        kind = self.positions.kind
        if kind in ("sinusoidal", "rope"):
            head = "d_model / heads" if self.head_dim is None else "head_dim"
            name, width = ("d_model", self.d_model) if kind == "sinusoidal" else (head, self.d_head)
            require(width % 2 == 0, f"positions.kind = {kind!r} pairs dimensions: {name} = {width} must be even")
        require(self.window is None or self.window > 0, f"window must be positive, not {self.window}")

    def _check_heads(self) -> None:
        require(
            self.head_dim is not None or self.d_model % self.heads == 0,
            f"heads must divide d_model: d_model = {self.d_model}, heads = {self.heads}",
        )
        require(self.head_dim is None or self.head_dim > 0, f"head_dim must be positive, not {self.head_dim}")
        shared = self.key_value_heads
        require(
            shared > 0 and self.heads % shared == 0,
            f"kv_heads must divide heads: heads = {self.heads}, kv_heads = {shared}",
        )

    def _check_kind(self) -> None:
        if self.kind != "decoder":
            layers = self.encoder_layers
            require(layers > 0, f"kind = {self.kind!r} needs encoder_layers > 0, not {layers}")
            require(layers <= MOST_LAYERS, f"encoder_layers must be at most {MOST_LAYERS:,}, not {layers:,}")
        if self.kind != "encoder":
            layers = self.decoder_layers
            require(layers > 0, f"kind = {self.kind!r} needs decoder_layers > 0, not {layers}")
            require(layers <= MOST_LAYERS, f"decoder_layers must be at most {MOST_LAYERS:,}, not {layers:,}")
            require(
                self.head.kind == "vocabulary",
                f"kind = {self.kind!r} predicts tokens: head.kind must be 'vocabulary', not {self.head.kind!r}",
            )
            require(self.embedding.segments == 0, f"embedding.segments is for kind = 'encoder', not {self.kind!r}")
        else:
            require(
                self.head.kind != "vocabulary",
                "kind = 'encoder' sees the whole sequence: head.kind must be 'masked', 'tokens', 'pooled' or 'none', "
                "not 'vocabulary'",
            )
        source = self.source_vocab_size
        require(source is None or source > 0, f"source_vocab_size must be positive, not {source}")
        two = "source_vocab_size is for kind = 'encoder-decoder'"
        require(source is None or self.kind == "encoder-decoder", f"{two}, not {self.kind!r}")
        if self.head.kind == "tokens":
            require(self.head.classes > 0, f"head.kind = 'tokens' needs head.classes > 0, not {self.head.classes}")

    @property
    def d_head(self) -> int:
        return self.d_model // self.heads if self.head_dim is None else self.head_dim

    @property
    def key_value_heads(self) -> int:
        """G: as many as `kv_heads` says, or one for each query head."""
        return self.heads if self.kv_heads is None else self.kv_heads
