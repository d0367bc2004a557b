"""Encoder-decoders after the paper: the annotated Transformer and its relatives.

Most of them find padding by its token. The doctor's masks are then written into the tokens: `with_pads`.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from bench.wild.clone import Clone, wild
from clearhead import doctor
from clearhead.doctor.describe import Description

PAD = 1  # <blank>, [PAD] or <pad>, as the vocabularies of these projects number it


def with_pads(tokens: Tensor, real: Tensor | None) -> Tensor:
    return tokens if real is None else tokens.masked_fill(~real, PAD)


def masks_as_tokens(forward: Callable[[Any, Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """forward(model, source, target) for the doctor, which gives masks besides."""

    def masked(model: Any, source: Tensor, target: Tensor, source_real: Any = None, target_real: Any = None) -> Tensor:
        return forward(model, with_pads(source, source_real), with_pads(target, target_real))

    return masked


def joined(batches: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """One batch, for trainers that do not accumulate."""
    sources, targets = zip(*batches, strict=True)
    return torch.cat(sources), torch.cat(targets)


def next_tokens(forward: Callable[..., Tensor], smoothing: float = 0.0) -> Callable[..., Tensor]:
    """The loss of trainers that feed all but the last token and ask for all but the first."""

    def loss(model: Any, source: Tensor, target: Tensor) -> Tensor:
        logits = forward(model, source, target[:, :-1])
        criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=smoothing)
        return criterion(logits.flatten(0, 1), target[:, 1:].flatten())

    return loss


def one_step(loss: Callable[..., Tensor], clip: float | None = None) -> Callable[..., None]:
    """The update of trainers that do not accumulate: clear, go back, clip where they do, step."""

    def update(model: Any, optimizer: Any, batches: Any) -> None:
        optimizer.zero_grad()
        loss(model, *joined(batches)).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()

    return update


def row_by_row(one: Callable[[Any, Tensor, int, int], Tensor]) -> Callable[..., Tensor]:
    """generate() over one(model, source row (1, T), first token, count) for loops that take one row."""

    def generate(model: Any, source: Tensor, start: Tensor, count: int) -> Tensor:
        pairs = zip(source.split(1), start[:, 0].tolist(), strict=True)
        return torch.cat([one(model, row, first, count).view(1, -1) for row, first in pairs])

    return generate


def after_the_paper(
    build: Callable[..., nn.Module], forward: Callable[..., Tensor], loss: Any = None, **more: Any
) -> Description:
    """A description with what most of them have in common; `more` holds the rest, and what is otherwise."""
    usual = {"pad": PAD, "positions": "absolute", "tied": False}
    update = one_step(loss, more.get("clip")) if loss is not None else None
    return doctor.EncoderDecoder(build=build, forward=forward, loss=loss, **{**usual, "update": update, **more})


@wild("harvardnlp/annotated-transformer")
def annotated(clone: Clone) -> Description:
    clone.absent("pandas", "altair", "torchtext", "spacy", "GPUtil")
    code = clone.module("the_annotated_transformer")

    def build(src_vocab: int, tgt_vocab: int, N: int, d_model: int, h: int, dropout: float) -> nn.Module:
        return code.make_model(src_vocab, tgt_vocab, N, d_model, 2 * d_model, h, dropout)

    @masks_as_tokens
    def forward(model: Any, source: Tensor, target: Tensor) -> Tensor:
        masks = (source != PAD).unsqueeze(-2), code.Batch.make_std_mask(target, PAD)
        return model.generator(model(source, target, *masks))

    def loss_of(model: Any) -> Any:
        size = model.generator.proj.out_features
        return code.SimpleLossCompute(model.generator, code.LabelSmoothing(size, PAD, smoothing=0.1))

    def loss(model: Any, source: Tensor, target: Tensor) -> Tensor:
        batch = code.Batch(source, target, PAD)
        out = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        return loss_of(model)(out, batch.tgt_y, batch.ntokens)[1]

    def update(model: Any, optimizer: Any, batches: Any) -> None:
        data = [code.Batch(*batch, PAD) for batch in batches]
        code.run_epoch(data, model, loss_of(model), optimizer, code.DummyScheduler(), accum_iter=len(data))

    def decode(model: Any, row: Tensor, first: int, count: int) -> Tensor:
        return code.greedy_decode(model, row, (row != PAD)[:, None], count + 1, first)

    return after_the_paper(
        build,
        forward,
        loss,
        label_smoothing=0.1,
        update=update,
        generate=row_by_row(decode),
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9),
        learning_rate=lambda step: code.rate(step, 512, 1.0, 40),
        warmup=40,
    )


@wild("jadore801120/attention-is-all-you-need-pytorch")
def jadore(clone: Clone) -> Description:
    code = clone.module("transformer.Models")
    optim, translator = clone.module("transformer.Optim"), clone.module("transformer.Translator")
    clone.absent("dill", "torchtext", "spacy", "torch.utils.tensorboard")
    train = clone.definitions("train.py")

    def build(vocab: int, width: int, heads: int, layers: int, max_length: int, dropout: float) -> nn.Module:
        sizes = {"d_word_vec": width, "d_model": width, "d_inner": 2 * width, "n_layers": layers, "n_head": heads}
        head = {"d_k": width // heads, "d_v": width // heads, "n_position": max_length}
        return code.Transformer(vocab, vocab, PAD, PAD, dropout=dropout, **sizes, **head)

    @masks_as_tokens
    def forward(model: Any, source: Tensor, target: Tensor) -> Tensor:
        logits = model(source, target)
        return logits.view(*target.shape, -1).log_softmax(-1)

    def while_translating(model: Any, source: Tensor, target: Tensor) -> Tensor:
        """The log-probabilities that the beam search ranks by."""
        search = translator.Translator(model, 1, 20, PAD, PAD, 2, 3)
        mask = code.get_pad_mask(source, PAD)
        return search._model_decode(target, model.encoder(source, mask)[0], mask).log()

    def loss(model: Any, source: Tensor, target: Tensor) -> Tensor:
        inputs, gold = train.patch_trg(target.t(), PAD)
        return train.cal_loss(model(source, inputs), gold, PAD, smoothing=True) / (gold != PAD).sum()

    def learning_rate(step: int) -> float:
        group = {"lr": 0.0}
        schedule = optim.ScheduledOptim(SimpleNamespace(param_groups=[group], step=lambda: None), 2.0, 512, 40)
        schedule.n_steps = step
        schedule.step_and_update_lr()
        return group["lr"]

    return after_the_paper(
        build,
        forward,
        loss,
        paths={"beam search": while_translating},
        label_smoothing=0.1,
        optimizer=lambda model: torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-09),
        learning_rate=learning_rate,
        warmup=40,
        tied=True,
        shared=True,
    )


@wild("gordicaleksa/pytorch-original-transformer")
def gordicaleksa(clone: Clone) -> Description:
    clone.absent("torchtext", "spacy", "torch.utils.tensorboard", "nltk", "git", "requests")
    code = clone.module("models.definitions.transformer_model")
    data, made = clone.module("utils.data_utils"), clone.module("utils.optimizers_and_distributions")
    decoding = clone.module("utils.decoding_utils")

    def build(vocab: int, width: int, heads: int, layers: int, dropout: float) -> nn.Module:
        return code.Transformer(width, vocab, vocab, heads, layers, dropout)

    @masks_as_tokens
    def forward(model: Any, source: Tensor, target: Tensor) -> Tensor:
        masks = data.get_masks_and_count_tokens(source, target, PAD, "cpu")[:2]
        return model(source, target, *masks).view(*target.shape, -1)

    def loss(model: Any, source: Tensor, target: Tensor) -> Tensor:
        source, inputs, gold = data.get_src_and_trg_batches(SimpleNamespace(src=source, trg=target))
        masks = data.get_masks_and_count_tokens(source, inputs, PAD, "cpu")[:2]
        logs = model(source, inputs, *masks)
        smoothed = made.LabelSmoothingDistribution(0.1, PAD, logs.size(-1), "cpu")(gold)
        return nn.KLDivLoss(reduction="batchmean")(logs, smoothed)

    def decode(model: Any, row: Tensor, first: int, count: int) -> Tensor:
        itos = list(range(model.decoder_generator.linear.out_features))  # words are their own numbers
        field = SimpleNamespace(vocab=SimpleNamespace(stoi={"<s>": first, "<pad>": PAD, "</s>": -1}, itos=itos))
        mask, _ = data.get_masks_and_count_tokens_src(row, PAD)
        memory = model.encode(row, mask)
        words = decoding.greedy_decoding(model, memory, mask, field, max_target_tokens=count)[0]
        return torch.tensor([first, *words[1:]])

    def learning_rate(step: int) -> float:
        schedule = made.CustomLRAdamOptimizer(None, 512, 40)
        schedule.current_step_number = step + 1
        return schedule.get_current_learning_rate()

    return after_the_paper(
        build,
        forward,
        loss,
        label_smoothing=0.1,
        generate=row_by_row(decode),
        optimizer=lambda model: torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9),
        learning_rate=learning_rate,
        warmup=40,
    )


@wild("hyunwoongko/transformer")
def hyunwoongko(clone: Clone) -> Description:
    code = clone.module("models.model.transformer")

    def initialize(module: Any) -> None:
        """As train.py does before training, under the name that today's PyTorch has for it."""
        if hasattr(module, "weight") and module.weight.dim() > 1:
            nn.init.kaiming_uniform_(module.weight.data)

    def build(vocab: int, width: int, heads: int, layers: int, max_length: int, dropout: float) -> nn.Module:
        sizes = {"d_model": width, "n_head": heads, "max_len": max_length, "ffn_hidden": 2 * width, "n_layers": layers}
        model = code.Transformer(PAD, PAD, 2, vocab, vocab, drop_prob=dropout, device="cpu", **sizes)
        return model.apply(initialize)

    @masks_as_tokens
    def forward(model: Any, source: Tensor, target: Tensor) -> Tensor:
        return model(source, target)

    loss = next_tokens(forward)

    return after_the_paper(
        build,
        forward,
        loss,
        clip=1.0,
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=1e-5, weight_decay=5e-4, eps=5e-9),
    )


@wild("hkproj/pytorch-transformer")
def hkproj(clone: Clone) -> Description:
    clone.absent("torchtext", "datasets", "torchmetrics", "torch.utils.tensorboard")
    code, data, train = clone.module("model"), clone.module("dataset"), clone.definitions("train.py")

    def build(vocab: int, width: int, heads: int, layers: int, max_length: int, dropout: float) -> nn.Module:
        return code.build_transformer(
            vocab, vocab, max_length, max_length, width, layers, heads, dropout, d_ff=2 * width
        )

    @masks_as_tokens
    def forward(model: Any, source: Tensor, target: Tensor) -> Tensor:
        source_mask = (source != PAD)[:, None, None].int()
        target_mask = (target != PAD)[:, None, None].int() & data.causal_mask(target.size(1))
        return model.project(model.decode(model.encode(source, source_mask), source_mask, target, target_mask))

    loss = next_tokens(forward, 0.1)

    def update(model: Any, optimizer: Any, batches: Any) -> None:
        loss(model, *joined(batches)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def decode(model: Any, row: Tensor, first: int, count: int) -> Tensor:
        tokenizer = SimpleNamespace(token_to_id={"[SOS]": first, "[EOS]": -1}.__getitem__)
        return train.greedy_decode(model, row, (row != PAD)[:, None, None].int(), None, tokenizer, count + 1, "cpu")

    return after_the_paper(
        build,
        forward,
        loss,
        label_smoothing=0.1,
        update=update,
        generate=row_by_row(decode),
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=1e-4, eps=1e-9),
    )
