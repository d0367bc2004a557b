"""How the weights start, all in one place.

The aim is that at the start every activation has a size near one, whatever the width, and that the logits are small,
so that the first loss is close to ln V: the model knows nothing, and is not confidently wrong.

* xavier (Glorot and Bengio, 2010; what the paper's code does): matrices uniform with variance 2/(in + out), which
  keeps the size of signals forward and of gradients backward.
* gpt2 (Radford et al., 2019): normal with deviation 0.02, and the two matrices that write into the residual stream
  smaller by √(2·layers), because that many of them add up there.
"""

import math

from torch import nn

from clearhead.model.config import ModelConfig


def initialise(model: nn.Module, config: ModelConfig) -> None:
    """Set every parameter of a freshly built model."""
    # scaled embeddings start at D^-1/2: times √D they have size one, and as tied head they give logits of size one
    deviation = config.d_model**-0.5 if config.embedding.scaled else 0.02
    deep = 0.02 / math.sqrt(2 * max(config.encoder_layers, config.decoder_layers))
    for full_name, parameter in model.named_parameters():
        name = full_name.removeprefix("source_")  # the source's own embedding starts as the target's does
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif "norm" in name:
            nn.init.ones_(parameter)
        elif name.startswith("embedding.positions") or name == "embedding.segments":
            # added to the scaled embedding, so of its size
            nn.init.normal_(parameter, std=deviation * (math.sqrt(config.d_model) if config.embedding.scaled else 1))
        elif name in ("embedding.weight", "output.weight"):
            nn.init.normal_(parameter, std=deviation)
        elif config.init == "xavier":
            nn.init.xavier_uniform_(parameter)
        else:
            into_residual = name.endswith(("attention.out.weight", "outer.weight"))
            nn.init.normal_(parameter, std=deep if into_residual else 0.02)
