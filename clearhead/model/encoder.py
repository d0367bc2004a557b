"""The encoder (section 3.1): a stack of layers in which every token sees every token."""

from torch import Tensor, nn

from clearhead.model.attention import Attend
from clearhead.model.attention_inputs import AttentionInputs, AttentionInputsBuilder
from clearhead.model.config import ModelConfig
from clearhead.model.layer import TransformerLayer
from clearhead.model.norm import build_norm


class Encoder(nn.Module):
    """N layers, and the final norm where there is one."""

    def __init__(self, config: ModelConfig, attend: Attend | None = None) -> None:
        super().__init__()
        self.attention_inputs = AttentionInputsBuilder(config, causal=False)
        self.layers = nn.ModuleList(TransformerLayer(config, attend) for _ in range(config.encoder_layers))
        self.norm = build_norm(config) if config.norm.final else None

    def forward(self, x: Tensor, inputs: AttentionInputs) -> Tensor:  # (B, S, D) -> (B, S, D)
        for layer in self.layers:
            x = layer(x, inputs)
        return x if self.norm is None else self.norm(x)
