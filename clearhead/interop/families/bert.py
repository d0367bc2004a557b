"""BERT (Devlin et al., 2019): the bare encoder, with its pooler, and with the heads for masked tokens and classes.

The form it was pre-trained in has two heads. Ours has one, so it is read as the masked model; the pooler and the
next-sentence head, which that one never runs, are left out.
"""

from typing import Any

from clearhead.interop.families.activations import ACTIVATIONS, NAMES
from clearhead.interop.family import Family, State
from clearhead.interop.keys import Keys
from clearhead.interop.weights import Row, row, under
from clearhead.model import ModelConfig, configure

LAYER = (
    row("attention.self.query.{p}", "self_attention.query.{p}"),
    row("attention.self.key.{p}", "self_attention.key.{p}"),
    row("attention.self.value.{p}", "self_attention.value.{p}"),
    row("attention.output.dense.{p}", "self_attention.out.{p}"),
    row("attention.output.LayerNorm.{p}", "self_attention_residual.norm.{p}"),
    row("intermediate.dense.{p}", "feed_forward.inner.{p}"),
    row("output.dense.{p}", "feed_forward.outer.{p}"),
    row("output.LayerNorm.{p}", "feed_forward_residual.norm.{p}"),
)
BASE = (
    row("bert.embeddings.word_embeddings.weight", "embedding.weight"),
    row("bert.embeddings.position_embeddings.weight", "embedding.positions.weight"),
    row("bert.embeddings.position_ids"),  # 0, 1, 2 …, not a weight
    row("bert.embeddings.token_type_embeddings.weight", "embedding.segments"),
    row("bert.embeddings.LayerNorm.{p}", "embedding.norm.{p}"),
    *under("bert.encoder.layer.{n}.", "encoder.layers.{n}.", LAYER),
)
POOLED = (
    row("bert.pooler.dense.{p}", "output.transform.{p}"),
    row("classifier.{p}", "output.classify.{p}"),
)
MASKED = (
    Row("bert.pooler.dense.{p}", (), left_out=True),
    Row("cls.seq_relationship.{p}", (), left_out=True),
    row("cls.predictions.transform.dense.{p}", "output.transform.{p}"),
    row("cls.predictions.transform.LayerNorm.{p}", "output.norm.{p}"),
    row("cls.predictions.bias", "output.bias"),
    row("cls.predictions.decoder.weight", "output.weight"),
    row("cls.predictions.decoder.bias", "output.bias"),
)


def rows(config: ModelConfig) -> tuple[Row, ...]:
    return BASE + (MASKED if config.head.kind == "masked" else POOLED)


def describe(keys: Keys, state: State) -> ModelConfig:
    keys.only(position_embedding_type="absolute", pruned_heads={})
    tied = keys.flag("tie_word_embeddings", True)
    pooled, classify = "bert.pooler.dense.weight" in state, state.get("classifier.weight")
    head: dict[str, Any] = {"kind": "none"}
    if any(name.startswith("cls.predictions.") for name in state):
        head = {"kind": "masked", "bias": True, "tied": tied}
    elif pooled or classify is not None:
        head = {"kind": "pooled" if pooled else "tokens", "classes": 0 if classify is None else len(classify)}
    dropout = keys.number("hidden_dropout_prob")
    return configure(
        "bert-base",
        vocab_size=keys.whole("vocab_size"),
        d_model=keys.whole("hidden_size"),
        heads=keys.whole("num_attention_heads"),
        d_ff=keys.whole("intermediate_size"),
        encoder_layers=keys.whole("num_hidden_layers"),
        activation=keys.choice("hidden_act", ACTIVATIONS),
        positions={"max_length": keys.whole("max_position_embeddings")},
        embedding={"segments": keys.whole("type_vocab_size")},
        norm={"epsilon": keys.number("layer_norm_eps")},
        dropout={
            "residual": dropout,
            "embedding": dropout,
            "attention": keys.number("attention_probs_dropout_prob"),
        },
        head=head,
    )


def settings(config: ModelConfig) -> dict[str, Any]:
    classes = config.head.classes
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_attention_heads": config.heads,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.encoder_layers,
        "hidden_act": NAMES.get(config.activation, "gelu"),
        "max_position_embeddings": config.positions.max_length or 512,
        "type_vocab_size": config.embedding.segments,
        "layer_norm_eps": config.norm.epsilon,
        "hidden_dropout_prob": config.dropout.residual,
        "attention_probs_dropout_prob": config.dropout.attention,
        "tie_word_embeddings": config.head.tied,
        **({"id2label": {str(n): f"LABEL_{n}" for n in range(classes)}} if classes else {}),
        **({"label2id": {f"LABEL_{n}": n for n in range(classes)}} if classes else {}),
    }


def architecture(config: ModelConfig) -> str:
    if config.head.kind == "masked":
        return "BertForMaskedLM"
    if config.head.kind == "tokens":
        return "BertForTokenClassification"
    return "BertForSequenceClassification" if config.head.classes else "BertModel"


FAMILY = Family(
    "bert",
    rows,
    describe,
    settings,
    architecture,
    prefix="bert.",
    bare=frozenset({"BertModel"}),
    harmless=frozenset({"classifier_dropout", "is_encoder_decoder", "directionality"})
    # what the first published files still say of a pooler that was never built
    | {f"pooler_{key}" for key in ("fc_size", "num_attention_heads", "num_fc_layers", "size_per_head", "type")},
    older=((".gamma", ".weight"), (".beta", ".bias")),
)
