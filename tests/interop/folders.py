"""Small models of other people's in folders, as `transformers` saves them, with tokenizers learned from a few lines."""

import json
import random
from pathlib import Path
from typing import Any

import tokenizers
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.interop.test_transformers import theirs_of

LINES = [
    "the cat sat on the mat", "a cat and a dog", "The Dog is 1234 years old, isn't it?", "Über allen Gipfeln ist Ruh",
    "naïve café, déjà vu", "  spaces   and\ttabs\n", "東京は日本の首都です", "emoji 🙂🙃 and more", "x = y_1 + 22;",
]  # fmt: skip
SIZE = 400


def fuzzed(count: int = 200, seed: int = 7) -> list[str]:
    """Texts of the lines' characters and of some that they do not have."""
    chance = random.Random(seed)
    alphabet = "".join(LINES) + "ÅÅñ́ﬁ①\u00a0\u200bпривет<s></s>[MASK]<unk>##▁" + "  "
    return [*LINES, "", " ", *("".join(chance.choices(alphabet, k=chance.randint(1, 40))) for _ in range(count))]


def byte_level(folder: Path, nfc: bool = False) -> None:
    """GPT-2's kind; with Qwen's normaliser if asked for, which ours does not have."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>", "<|im_end|>"]
    made.train_from_iterator(
        LINES, trainers.BpeTrainer(vocab_size=SIZE, special_tokens=special, initial_alphabet=alphabet)
    )
    if nfc:
        made.normalizer = normalizers.NFC()
    made.save(str(folder / "tokenizer.json"))
    names = {"eos_token": "<|im_end|>" if nfc else "<|endoftext|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))


def llama_like(folder: Path) -> None:
    """Llama 2's: pieces with a space before the first word, bytes for what is no piece, <s> before a text."""
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    made.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=SIZE, special_tokens=special))
    content = json.loads(made.to_str())
    content["added_tokens"] = content["added_tokens"][:3]
    made = tokenizers.Tokenizer.from_str(json.dumps(content))
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))


def word_piece(folder: Path, whole: bool = True) -> None:
    """BERT's, as a tokenizer.json or as the vocab.txt of older folders."""
    made = tokenizers.BertWordPieceTokenizer()
    made.train_from_iterator(LINES, vocab_size=SIZE)
    vocabulary = sorted(made.get_vocab().items(), key=lambda item: item[1])
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token, _ in vocabulary))
    if whole:
        made.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            special_tokens=[("[CLS]", made.token_to_id("[CLS]")), ("[SEP]", made.token_to_id("[SEP]"))],
        )
        made.save(str(folder / "tokenizer.json"))
        (folder / "vocab.txt").unlink()
    names = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
    written = {**{f"{role}_token": name for role, name in names.items()}, "tokenizer_class": "BertTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(written))


def marian_pieces(folder: Path, apart: bool = False) -> dict[str, int]:
    """Two unigram models of SentencePiece and the ids of their pieces, in one file or in two."""
    import sentencepiece

    vocabularies = []
    for side, lines in (("source", LINES[:6]), ("target", LINES[2:])):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines * 3), model_prefix=str(folder / side), vocab_size=90, model_type="unigram",
            character_coverage=0.98, hard_vocab_limit=False, bos_id=-1, eos_id=0, unk_id=1, minloglevel=2,
        )  # fmt: skip
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        vocabularies.append([model.id_to_piece(number) for number in range(model.get_piece_size())])
    first, second = vocabularies
    # one number of padding serves both sides, so where these are apart it comes early
    early = [*first[:2], "<pad>"] if apart else []
    together = list(dict.fromkeys([*early, *first, *([] if apart else second), ">>xyz<<", "<pad>"]))
    vocabulary = {piece: number for number, piece in enumerate(together)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    if apart:
        own = {piece: number for number, piece in enumerate(dict.fromkeys([*second[:2], "<pad>", *second]))}
        (folder / "target_vocab.json").write_text(json.dumps(own))
    names = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "separate_vocabs": apart}
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, "source_lang": "a", "target_lang": "b"}))
    return vocabulary


def saved(folder: Path, kind: str, family: str, **settings: Any) -> Any:
    """A small random model of theirs, saved in float32 with a file of weights."""
    theirs = theirs_of(kind, family, **{"vocab_size": SIZE + 7, **settings}).float().eval()
    transformers.utils.logging.disable_progress_bar()
    theirs.save_pretrained(folder)
    return theirs
