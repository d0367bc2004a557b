"""Encoder-decoders and encoders of tutorials and courses."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.wild.clone import Clone, wild
from bench.wild.translators import PAD, after_the_paper, masks_as_tokens, next_tokens, one_step, with_pads
from clearhead import doctor
from clearhead.doctor.describe import Description


@wild("SamLynnEvans/Transformer")
def samlynnevans(clone: Clone) -> Description:
    clone.absent("torchtext", "dill", "spacy", "pandas", "nltk")
    code, batching = clone.module("Models"), clone.module("Batch")
    options = SimpleNamespace(src_pad=PAD, trg_pad=PAD, device="cpu", load_weights=None)

    def build(vocab: int, d_model: int, n_layers: int, heads: int, dropout: float) -> nn.Module:
        sizes = {"d_model": d_model, "n_layers": n_layers, "heads": heads, "dropout": dropout}
        return code.get_model(SimpleNamespace(**vars(options), **sizes), vocab, vocab)

    @masks_as_tokens
    def forward(model: Any, source: Tensor, target: Tensor) -> Tensor:
        return model(source, target, *batching.create_masks(source, target, options))

    loss = next_tokens(forward)

    return after_the_paper(
        build,
        forward,
        loss,
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9),
    )


@wild("aladdinpersson/Machine-Learning-Collection")
def from_scratch(clone: Clone) -> Description:
    code = clone.module("transformer_from_scratch", under="ML/Pytorch/more_advanced/transformer_from_scratch")

    def build(vocab: int, width: int, heads: int, layers: int, max_length: int, dropout: float) -> nn.Module:
        return code.Transformer(vocab, vocab, PAD, PAD, width, layers, 2, heads, dropout, "cpu", max_length)

    def forward(model: Any, source: Tensor, target: Tensor, source_real: Any = None) -> Tensor:
        return model(with_pads(source, source_real), target)  # it has no mask for the target's padding

    return after_the_paper(build, forward)


@wild("aladdinpersson/Machine-Learning-Collection")
def on_nn_transformer(clone: Clone) -> Description:
    clone.absent("torchtext", "spacy", "torch.utils.tensorboard")
    script = clone.definitions("ML/Pytorch/more_advanced/seq2seq_transformer/seq2seq_transformer.py")

    def build(vocab: int, width: int, heads: int, layers: int, max_length: int, dropout: float) -> nn.Module:
        sizes = (width, vocab, vocab, PAD, heads, layers, layers, 4, dropout, max_length, "cpu")
        return script.Transformer(*sizes)

    def forward(model: Any, source: Tensor, target: Tensor, source_real: Any = None) -> Tensor:
        return model(with_pads(source, source_real).t(), target.t()).transpose(0, 1)

    def loss(model: Any, source: Tensor, target: Tensor) -> Tensor:
        columns = target.t()
        output = model(source.t(), columns[:-1])
        output, gold = output.reshape(-1, output.shape[2]), columns[1:].reshape(-1)
        return nn.CrossEntropyLoss(ignore_index=PAD)(output, gold)

    return after_the_paper(
        build,
        forward,
        loss,
        clip=1.0,
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=3e-4),
    )


@wild("dreamgonfly/transformer-pytorch")
def dreamgonfly(clone: Clone) -> Description:
    code, masks, losses = clone.module("models"), clone.module("utils.pad"), clone.module("losses")
    optimizers = clone.module("optimizers")
    blank = masks.PAD_TOKEN_INDEX

    def build(vocab: int, width: int, heads: int, layers: int, dropout: float) -> nn.Module:
        sizes = {"d_model": width, "heads_count": heads, "layers_count": layers, "d_ff": 2 * width}
        config = {"positional_encoding": True, "dropout_prob": dropout, **sizes}
        return code.build_model(config, vocab, vocab)

    def forward(model: Any, source: Tensor, target: Tensor, source_real: Any = None, target_real: Any = None) -> Tensor:
        """Transformer.forward with boolean masks, which today's PyTorch insists on."""
        source = source if source_real is None else source.masked_fill(~source_real, blank)
        target = target if target_real is None else target.masked_fill(~target_real, blank)
        hidden = masks.subsequent_masking(target).bool() | masks.pad_masking(target, target.size(1))
        memory = model.encoder(source, masks.pad_masking(source, source.size(1)))
        return model.decoder(target, memory, masks.pad_masking(source, target.size(1)), hidden)[0]

    def cached(model: Any, source: Tensor, target: Tensor, cache: Any) -> tuple[Tensor, Any]:
        state, memory = cache or (None, None)
        if state is None:
            state = model.decoder.init_decoder_state()
            memory = model.encoder(source, masks.pad_masking(source, source.size(1)))
        outputs = []
        for token in target.split(1, dim=1):  # as predictors.py does
            output, state = model.decoder(token, memory, masks.pad_masking(source, 1), state=state)
            outputs.append(output)
        return torch.cat(outputs, dim=1), (state, memory)

    def loss(model: Any, source: Tensor, target: Tensor) -> Tensor:
        logits = forward(model, source, target[:, :-1])
        criterion = losses.LabelSmoothingLoss(0.1, logits.size(-1), blank).to(logits.dtype)
        summed, count = criterion(logits, target[:, 1:].contiguous())
        return summed / count  # the mean that it reports; it goes down the sum, with the gradient clipped to 1

    def learning_rate(step: int) -> float:
        optimizer = optimizers.NoamOptimizer([nn.Parameter(torch.zeros(1))], d_model=512, warmup_steps=40)
        optimizer.step_num = step + 1
        return optimizer.lrate()

    return after_the_paper(
        build,
        forward,
        loss,
        cached=cached,
        label_smoothing=0.1,
        learning_rate=learning_rate,
        warmup=40,
        update=None,  # its loop cannot be called apart
        pad=blank,
        tied=True,
    )


@wild("tunz/transformer-pytorch")
def tunz(clone: Clone) -> Description:
    code, made = clone.module("model.transformer"), clone.module("utils.utils")
    optimizer = clone.module("utils.optimizer")

    def build(vocab: int, hidden_size: int, n_layers: int, dropout_rate: float) -> nn.Module:
        sizes = {"n_layers": n_layers, "hidden_size": hidden_size, "filter_size": 2 * hidden_size}
        return code.Transformer(vocab, vocab, **sizes, dropout_rate=dropout_rate, src_pad_idx=PAD, trg_pad_idx=PAD)

    def shifted(model: Any, source: Tensor, target: Tensor) -> Tensor:
        """Transformer.forward with a boolean mask: output i has seen the targets before i."""
        blank, own = made.create_pad_mask(source, PAD), made.create_trg_self_mask(target.size(1)).bool()
        memory = model.encode(source, blank)
        return model.decode(target, memory, blank, own, made.create_pad_mask(target, PAD))

    @masks_as_tokens
    def forward(model: Any, source: Tensor, target: Tensor) -> Tensor:
        return shifted(model, source, F.pad(target, (0, 1), value=PAD))[:, 1:]

    def loss(model: Any, source: Tensor, target: Tensor) -> Tensor:
        logits = shifted(model, source, target)[:, 1:]
        return made.get_loss(logits.flatten(0, 1), target[:, 1:].flatten(), logits.size(-1), 0.1, PAD)

    def learning_rate(step: int) -> float:
        schedule = optimizer.LRScheduler([nn.Parameter(torch.zeros(1))], 512, 40, step=step + 1)
        return schedule.learning_rate()

    return after_the_paper(
        build,
        forward,
        loss,
        label_smoothing=0.1,
        learning_rate=learning_rate,
        warmup=40,
        update=None,
        sizes={"width": 32},
        tied=True,
        shared=True,
    )


@wild("codertimo/BERT-pytorch")
def codertimo(clone: Clone) -> Description:
    code, optim = clone.module("bert_pytorch.model"), clone.module("bert_pytorch.trainer.optim_schedule")

    def build(vocab: int, width: int, heads: int, layers: int, dropout: float) -> nn.Module:
        return code.BERTLM(code.BERT(vocab, width, layers, heads, dropout), vocab)

    def forward(model: Any, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        tokens = tokens if real is None else tokens.masked_fill(~real, 0)
        return model(tokens, (tokens > 0).long())[1]  # all of one sentence

    def loss(model: Any, tokens: Tensor, labels: Tensor) -> Tensor:
        return nn.NLLLoss(ignore_index=0)(forward(model, tokens).transpose(1, 2), labels)

    def learning_rate(step: int) -> float:
        group = {"lr": 0.0}
        schedule = optim.ScheduledOptim(SimpleNamespace(param_groups=[group], step=lambda: None), 512, 40)
        schedule.n_current_steps = step
        schedule.step_and_update_lr()
        return float(group["lr"])

    return doctor.Encoder(
        build=build,
        forward=forward,
        loss=loss,
        update=one_step(loss),
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=1e-4, weight_decay=0.01),
        learning_rate=learning_rate,
        warmup=40,
        pad=0,
        positions="absolute",
        tied=False,
    )
