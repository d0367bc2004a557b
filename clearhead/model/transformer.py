"""The three models made of these parts: encoder-decoder (the paper's), decoder-only, encoder-only.

Each gives `hidden(...)`, the states after the last layer, apart from `head(...)`, which makes logits of them: a loss
can then multiply by the vocabulary matrix piece by piece and never hold all (tokens × vocabulary) logits.
"""

import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.model.attention import Attend
from clearhead.model.attention_inputs import AttentionInputs
from clearhead.model.cache import KVCache
from clearhead.model.config import ModelConfig
from clearhead.model.decoder import Decoder
from clearhead.model.embedding import TokenEmbedding
from clearhead.model.encoder import Encoder
from clearhead.model.heads import VocabularyHead, build_head
from clearhead.model.initialise import initialise
from clearhead.model.masks import padding_mask


class EncoderDecoder(nn.Module):
    """Reads a source, writes a target: the Transformer of the paper (figure 1). One vocabulary serves both sides,
    unless `source_vocab_size` gives the source its own."""

    def __init__(self, config: ModelConfig, attend: Attend | None = None) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(config)
        self.source_embedding = TokenEmbedding(config, config.source_vocab_size) if config.source_vocab_size else None
        self.encoder = Encoder(config, attend)
        self.decoder = Decoder(config, attend)
        self.output = VocabularyHead(config)
        initialise(self, config)

    def encode(self, source: Tensor, source_real: Tensor | None = None) -> Tensor:
        """Source ids (B, T) to the memory (B, T, D) that the decoder looks into."""
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        inputs = self.encoder.attention_inputs(source, embedding.weight, source_real, side="source_")
        return self.encoder(embedding(source, inputs), inputs)

    def decode(
        self,
        target: Tensor,  # (B, S)
        memory: Tensor,  # (B, T, D)
        source_real: Tensor | None = None,  # (B, T), True at real tokens
        target_real: Tensor | None = None,  # (B, S); padding on the right is hidden by causality already
        cache: KVCache | None = None,  # then `target` is only what is new
    ) -> Tensor:  # (B, S, D)
        """Hidden states of the target so far; position i has seen the target up to i and the whole source."""
        inputs = self.decoder.attention_inputs(target, self.embedding.weight, target_real, None, cache, "target_")
        if memory.size(0) != target.size(0):
            raise InputError(f"source and target must have the same batch: {memory.size(0)} and {target.size(0)}")
        hidden = None if source_real is None else padding_mask(source_real, memory, "source_real")
        return self.decoder(self.embedding(target, inputs), inputs, memory, AttentionInputs(hidden), cache)

    def hidden(
        self,
        source: Tensor,
        target: Tensor,
        source_real: Tensor | None = None,
        target_real: Tensor | None = None,
    ) -> Tensor:
        """States (B, S, D) after the last layer, for every target position at once (teacher forcing)."""
        return self.decode(target, self.encode(source, source_real), source_real, target_real)

    def head(self, hidden: Tensor) -> Tensor:
        """(B, S, D) -> logits (B, S, V) of the next token."""
        return self.output(hidden, self.embedding)

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_real: Tensor | None = None,
        target_real: Tensor | None = None,
    ) -> Tensor:
        return self.head(self.hidden(source, target, source_real, target_real))


class DecoderOnly(nn.Module):
    """Continues a text: a language model. GPT-2 and Llama are configurations of it."""

    def __init__(self, config: ModelConfig, attend: Attend | None = None) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(config)
        self.decoder = Decoder(config, attend)
        self.output = VocabularyHead(config)
        initialise(self, config)

    def hidden(
        self,
        tokens: Tensor,  # (B, S)
        real: Tensor | None = None,  # (B, S), True at real tokens
        documents: Tensor | None = None,  # (B, S) numbers: packed documents do not see each other
        cache: KVCache | None = None,  # then `tokens` is only what is new
    ) -> Tensor:
        """States (B, S, D) after the last layer; position i has seen tokens up to i."""
        inputs = self.decoder.attention_inputs(tokens, self.embedding.weight, real, documents, cache)
        return self.decoder(self.embedding(tokens, inputs), inputs, cache=cache)

    def head(self, hidden: Tensor) -> Tensor:
        """(B, S, D) -> logits (B, S, V) of the next token."""
        return self.output(hidden, self.embedding)

    def forward(
        self,
        tokens: Tensor,
        real: Tensor | None = None,
        documents: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        return self.head(self.hidden(tokens, real, documents, cache))


class EncoderOnly(nn.Module):
    """Reads a text and says something of each token, or of the whole. BERT is a configuration of it."""

    def __init__(self, config: ModelConfig, attend: Attend | None = None) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(config)
        self.encoder = Encoder(config, attend)
        self.output = build_head(config)
        initialise(self, config)

    def hidden(
        self,
        tokens: Tensor,  # (B, S)
        real: Tensor | None = None,  # (B, S), True at real tokens
        segments: Tensor | None = None,  # (B, S)
        documents: Tensor | None = None,
    ) -> Tensor:
        """States (B, S, D) after the last layer; every position has seen every real token."""
        inputs = self.encoder.attention_inputs(tokens, self.embedding.weight, real, documents)
        return self.encoder(self.embedding(tokens, inputs, segments), inputs)

    def head(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        """What `config.head` says: (B, S, V), (B, S, classes), (B, classes), the pooled (B, D), or `hidden` itself."""
        return self.output(hidden, self.embedding, real)

    def forward(
        self,
        tokens: Tensor,
        real: Tensor | None = None,
        segments: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Tensor:
        return self.head(self.hidden(tokens, real, segments, documents), real)


Transformer = EncoderDecoder | DecoderOnly | EncoderOnly


def build(config: ModelConfig, attend: Attend | None = None) -> Transformer:
    """The model of a configuration; `attend` replaces the attention mechanism everywhere."""
    if config.kind == "encoder-decoder":
        return EncoderDecoder(config, attend)
    return DecoderOnly(config, attend) if config.kind == "decoder" else EncoderOnly(config, attend)


def count_parameters(config: ModelConfig) -> int:
    """Parameters of a configuration, a tied matrix once; counted on the meta device, without memory."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(config).parameters())
