"""torch's own layers: query, key and value in one matrix. No family with a configuration, only tables of names."""

from clearhead.interop.weights import row, under

ATTENTION = (
    row("in_proj_{p}", "query.{p}", "key.{p}", "value.{p}"),
    row("out_proj.{p}", "out.{p}"),
)
ENCODER_LAYER = (
    *under("self_attn.", "self_attention.", ATTENTION),
    row("norm1.{p}", "self_attention_residual.norm.{p}"),
    row("linear1.{p}", "feed_forward.inner.{p}"),
    row("linear2.{p}", "feed_forward.outer.{p}"),
    row("norm2.{p}", "feed_forward_residual.norm.{p}"),
)
DECODER_LAYER = (
    *under("self_attn.", "self_attention.", ATTENTION),
    row("norm1.{p}", "self_attention_residual.norm.{p}"),
    *under("multihead_attn.", "cross_attention.", ATTENTION),
    row("norm2.{p}", "cross_attention_residual.norm.{p}"),
    row("linear1.{p}", "feed_forward.inner.{p}"),
    row("linear2.{p}", "feed_forward.outer.{p}"),
    row("norm3.{p}", "feed_forward_residual.norm.{p}"),
)
WHOLE = (
    *under("encoder.layers.{n}.", "encoder.layers.{n}.", ENCODER_LAYER),
    row("encoder.norm.{p}", "encoder.norm.{p}"),
    *under("decoder.layers.{n}.", "decoder.layers.{n}.", DECODER_LAYER),
    row("decoder.norm.{p}", "decoder.norm.{p}"),
)
