"""Descriptions that nobody wrote: every style is read right, nothing healthy is called ill, bugs still show."""

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from clearhead import doctor
from clearhead.doctor.infer import Inferred
from clearhead.doctor.infer.names import size
from clearhead.doctor.infer.target import describe_target
from tests.doctor import styles


def inferred(name: str) -> Inferred:
    return describe_target(f"tests.doctor.styles:{name}")


# name: kind, the code of its call, further fields, probes that must have a say
STYLES = {
    "GPT": ("CausalLM", "model(tokens, targets=tokens)[0]", {"generate", "loss", "optimizer"},
            ["prefix", "generate", "optimizer", "loss"]),
    "DictModel": ("CausalLM", "model(tokens)", {"cached"}, ["future", "cache"]),
    "NamespaceModel": ("CausalLM", "model(tokens)['logits']", {"cached"}, ["future", "cache"]),
    "Tagger": ("Encoder", "model(tokens, **masks)", set(), ["reach", "padding"]),
    "Translator": ("EncoderDecoder", "model(source, target).view(*target.shape, -1)", {"pad"}, ["future", "padding"]),
    "FixedPadding": ("EncoderDecoder", "source.masked_fill(~source_real, 1)", {"pad"}, ["padding", "padding_row"]),
    "Core": ("EncoderDecoder", "tgt_mask=target_real[:, None, :] & causal(target)", set(), ["future", "padding"]),
    "TorchTranslator": ("EncoderDecoder", "tgt_mask=~causal(target)", set(), ["future", "padding", "batch"]),
}  # fmt: skip


@pytest.mark.parametrize("name", STYLES)
def test_a_style_needs_no_description_and_healthy_models_stay_healthy(name: str) -> None:
    kind, call, fields, probes = STYLES[name]
    found = inferred(name)
    assert type(found.spec).__name__ == kind
    assert call in found.code
    given = {
        field
        for field in ("cached", "generate", "loss", "optimizer", "pad")
        if getattr(found.spec, field, None) is not None
    }
    assert given == fields
    report = doctor.check(found.spec, only=probes)
    assert report.errors == ()
    assert set(report.passed) == set(probes)


def test_sequence_first_is_found_out_by_trying() -> None:
    assert "source.T.contiguous()" in inferred("TorchTranslator").code
    assert ".T" not in inferred("Translator").code


def test_a_class_made_of_parts_is_built_by_the_factory_beside_it() -> None:
    found = inferred("Core")
    assert "return make_model(src_vocab=vocab, tgt_vocab=vocab, N=layers, d_model=width, h=heads)" in found.code
    assert "model.generator(" in found.code
    assert "built with make_model()" in found.assumed
    by_factory = describe_target("tests.doctor.styles:make_model").code
    assert (
        by_factory.split("# assumed")[0].split("def build")[1] == found.code.split("# assumed")[0].split("def build")[1]
    )


def test_what_is_printed_is_what_runs(tmp_path: Path) -> None:
    found = inferred("NamespaceModel")
    (tmp_path / "spec_of_namespace.py").write_text(found.code)
    kept = describe_target(str(tmp_path / "spec_of_namespace.py"))
    assert kept.code == ""  # nothing is inferred any more
    probes = ["future", "batch", "cache", "parameters"]
    assert doctor.check(kept.spec, only=probes).to_json() == doctor.check(found.spec, only=probes).to_json()


# ---- bugs, and what only looks like one ---------------------------------------------------------------------------


class Leaky(styles.NamespaceModel):
    """The diagonal is off by one."""

    def forward(self, tokens: Tensor, past_key_values: Any = None) -> dict[str, Any]:
        x = self.table(tokens)
        for block in self.blocks:
            x = block(x, torch.ones(tokens.size(1), tokens.size(1), dtype=torch.bool).triu(2))
        return {"logits": self.head(x)}


class OpenGPT(styles.NamespaceModel):
    """No mask at all, in a model that is called GPT."""

    def forward(self, tokens: Tensor) -> Tensor:  # type: ignore[override]
        x = self.table(tokens)
        for block in self.blocks:
            x = block(x, None)
        return self.head(x)


class Reader(OpenGPT):
    """The same under a name that promises nothing: an encoder."""


class WeakMask(styles.Tagger):
    """What is padding gets a little less attention, not none."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x, blocks = self.table(input_ids), cast("list[styles.Block]", list(self.blocks))
        for block in blocks:
            y = block.norm1(x)
            q, k, v = (block.split(part(y)) for part in (block.query, block.key, block.value))
            scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
            if attention_mask is not None:
                scores = scores - 4.0 * (attention_mask == 0)[:, None, None, :]
            x = x + block.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
            x = x + block.down(block.up(block.norm2(x)).relu())
        return x


class ForgetfulCache(styles.NamespaceModel):
    """Positions start again with every piece."""

    def forward(self, tokens: Tensor, past_key_values: Any = None) -> dict[str, Any]:
        table = self.table.forward
        self.table.forward = lambda tokens, start=0: table(tokens, 0)  # type: ignore[method-assign]
        try:
            return super().forward(tokens, past_key_values)
        finally:
            self.table.forward = table  # type: ignore[method-assign]


class BreaksAtTwo(styles.NamespaceModel):
    """The cache works once and then raises."""

    def forward(self, tokens: Tensor, past_key_values: Any = None) -> dict[str, Any]:
        if past_key_values is not None:
            raise IndexError("the second token")
        return super().forward(tokens)


class IgnoresIt(styles.NamespaceModel):
    """An argument called cache that has nothing to do with decoding."""

    def forward(self, tokens: Tensor, past_key_values: Any = None) -> dict[str, Any]:
        return {"logits": super().forward(tokens)["logits"], "past_key_values": [torch.zeros(1, 1, 1)]}


@pytest.mark.parametrize(
    ("name", "kind", "probe", "finding"),
    [
        ("Leaky", "CausalLM", "future", "future.visible"),
        ("OpenGPT", "CausalLM", "future", "future.visible"),
        ("WeakMask", "Encoder", "padding", "padding.content"),
        ("ForgetfulCache", "CausalLM", "cache", "cache.differs"),
    ],
)
def test_bugs_show_without_a_description(name: str, kind: str, probe: str, finding: str) -> None:
    found = describe_target(f"{__name__}:{name}")
    assert type(found.spec).__name__ == kind
    assert [one.id for one in doctor.check(found.spec, only=[probe]).errors] == [finding]


def test_a_cache_that_works_once_is_described_and_left_to_the_probe() -> None:
    found = describe_target(f"{__name__}:BreaksAtTwo")
    assert found.spec.cached is not None  # type: ignore[attr-defined]
    assert any("then it raised the second token" in line for line in found.assumed)


def test_what_cannot_be_found_out_is_left_open_with_the_line_to_add() -> None:
    found = describe_target(f"{__name__}:IgnoresIt")
    assert found.spec.cached is None  # type: ignore[attr-defined]
    assert [(probe, line) for probe, _, line in found.open] == [
        ("cache", "cached=lambda model, tokens, cache: (logits, cache)")
    ]


def test_a_model_that_sees_everything_and_promises_nothing_is_an_encoder() -> None:
    found = describe_target(f"{__name__}:Reader")
    assert type(found.spec).__name__ == "Encoder"
    assert any("for a causal model write doctor.CausalLM" in line for line in found.assumed)
    assert doctor.check(found.spec, only=["reach", "future", "batch"]).errors == ()


class Uninitialised(styles.NamespaceModel):
    """Positions that wait for loaded weights, and an encoder's outputs that come from elsewhere."""

    def __init__(self, vocab_size: int, dim: int, n_heads: int, n_layers: int) -> None:
        nn.Module.__init__(self)
        self.places = nn.Parameter(torch.empty(640, dim))
        self.tokens, self.head = nn.Embedding(vocab_size, dim), nn.Linear(dim, vocab_size)
        self.blocks = nn.ModuleList(styles.Block(dim, n_heads, cross=True) for _ in range(n_layers))

    def forward(self, x: Tensor, xa: Tensor) -> Tensor:  # type: ignore[override]
        hidden = styles.future(x)
        x = self.tokens(x) + self.places[: x.size(1)]
        for block in self.blocks:
            x = block(x, hidden, memory=xa)
        return self.head(x)


def test_memory_is_made_up_and_bare_parameters_are_filled() -> None:
    found = describe_target(f"{__name__}:Uninitialised")
    assert "model(tokens, xa=memory(model, tokens))" in found.code
    assert "places is left uninitialised by the constructor: small random numbers" in found.assumed
    assert doctor.check(found.spec, only=["future", "reach", "position"]).errors == ()


# ---- libraries ----------------------------------------------------------------------------------------------------

FAMILIES = {
    "GPT2LMHeadModel": "CausalLM", "LlamaForCausalLM": "CausalLM", "BertForMaskedLM": "Encoder",
    "T5ForConditionalGeneration": "EncoderDecoder",
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_models_of_transformers_need_their_class_alone(name: str) -> None:
    found = describe_target(f"transformers:{name}")
    assert type(found.spec).__name__ == FAMILIES[name]
    assert doctor.check(found.spec, only=["future", "padding", "reach"]).errors == ()
    assert f"spec = doctor.from_transformers({name}, {name}.config_class())" in found.code


MORE_FAMILIES = (
    "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "GemmaForCausalLM", "OPTForCausalLM",
    "PhiForCausalLM", "GPTNeoXForCausalLM", "BertModel", "RobertaForMaskedLM", "DistilBertModel",
    "BartForConditionalGeneration", "MarianMTModel",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", MORE_FAMILIES)
def test_more_models_of_transformers(name: str) -> None:
    assert doctor.check(describe_target(f"transformers:{name}").spec, quick=True).errors == ()


def test_a_generate_that_only_draws_is_told_as_such() -> None:
    found = inferred("Sampler")
    assert found.spec.generate is None  # type: ignore[attr-defined]
    assert ["draws at random" in reason for probe, reason, _ in found.open if probe == "generate"] == [True]


# ---- names --------------------------------------------------------------------------------------------------------

NAMES: dict[str, list[str]] = {
    "vocab": [
        "vocab_size",
        "n_vocab",
        "ntoken",
        "num_tokens",
        "src_vocab",
        "n_src_vocab",
        "enc_voc_size",
        "trg_vocab_size",
    ],
    "width": [
        "d_model",
        "n_embd",
        "emb_dim",
        "embed_dim",
        "hidden_size",
        "model_dimension",
        "dim",
        "ninp",
        "d_word_vec",
    ],
    "heads": ["n_head", "nhead", "num_heads", "number_of_heads", "h", "num_attention_heads"],
    "kv_heads": ["n_kv_heads", "num_key_value_heads", "n_kv_groups", "n_query_groups"],
    "layers": ["n_layer", "num_layers", "nlayers", "N", "depth", "num_hidden_layers", "num_encoder_layers"],
    "max_length": ["block_size", "context_length", "max_seq_len", "n_positions", "max_position_embeddings", "n_ctx"],
    "dropout": ["dropout", "drop_rate", "attn_pdrop", "dropout_probability", "hidden_dropout_prob"],
    "inner": ["d_ff", "dim_feedforward", "ffn_hidden", "d_inner", "nhid", "intermediate_size"],
    "head_width": ["head_dim", "d_k", "d_v", "dim_head"],
}


def test_names_of_sizes() -> None:
    wrong = [(name, size(name), meaning) for meaning, names in NAMES.items() for name in names if size(name) != meaning]
    assert not wrong
    assert [
        name for name in ("layer_norm_eps", "bias", "src_embed", "encoder", "tokenizer", "activation") if size(name)
    ] == []
