"""Other people's configurations, read key by key so that none is passed over.

Each key of a `config.json` is used, known to change nothing that a model computes, or refused by name. Using a key is
reading it here; what nobody has read at the end must be among the harmless ones.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from clearhead.errors import InputError
from clearhead.settings import convert

T = TypeVar("T")
_NEEDED: Any = object()

# what `transformers` writes for any model, in its versions 4 and 5: where it came from, what to return, how to generate
HARMLESS = frozenset(
    """
    _name_or_path _commit_hash _attn_implementation _attn_implementation_autoset attn_implementation architectures
    model_type torch_dtype dtype transformers_version use_cache return_dict output_hidden_states output_attentions
    torchscript use_bfloat16 chunk_size_feed_forward gradient_checkpointing initializer_range
    finetuning_task id2label label2id num_labels _num_labels problem_type tf_legacy_loss transformers.js_config
    task_specific_params tokenizer_class prefix
    bos_token_id pad_token_id eos_token_id sep_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id
    max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p
    typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
    bad_words num_return_sequences output_scores return_dict_in_generate remove_invalid_values suppress_tokens
    begin_suppress_tokens exponential_decay_length_penalty add_bos_token add_eos_token
    """.split()  # noqa: SIM905
)


class Keys:
    """The keys of one configuration. `values[key]` would be a KeyError; here what is missing is named."""

    def __init__(self, values: Mapping[str, Any], where: str = "") -> None:
        self.values, self.where = values, where
        self.used: set[str] = set()

    def _get(self, key: str, hint: Any, default: Any) -> Any:
        self.used.add(key)
        value = self.values.get(key)
        if value is None:  # null and nothing are the same to those who write these files
            if default is _NEEDED:
                raise InputError(f"the key {self.where + key!r} is missing")
            return default
        return convert(hint, value, self.where + key)

    def whole(self, key: str, default: Any = _NEEDED) -> Any:
        return self._get(key, int, default)

    def number(self, key: str, default: Any = _NEEDED) -> Any:
        return self._get(key, float, default)

    def flag(self, key: str, default: Any = _NEEDED) -> Any:
        return self._get(key, bool, default)

    def names(self, key: str) -> list[str]:
        """A list of words; none if it is not there."""
        return list(self._get(key, tuple[str, ...], ()))

    def table(self, key: str) -> "Keys | None":
        """A table inside the configuration, if it is there."""
        found = self._get(key, dict, None)
        return None if found is None else Keys(found, f"{self.where}{key}.")

    def choice(self, key: str, known: Mapping[str, T], default: str | None = None) -> T:
        """What a word of theirs means here."""
        value = self._get(key, str, _NEEDED if default is None else default)
        if value not in known:
            raise InputError(f"{self.where}{key} = {value!r} is not one of {', '.join(known)}")
        return known[value]

    def only(self, **wanted: Any) -> None:
        """Keys that our models cannot follow unless they are absent or have these values."""
        for key, value in wanted.items():
            self.used.add(key)
            found = self.values.get(key)
            if found is not None and (found != value or isinstance(found, bool) != isinstance(value, bool)):
                raise InputError(f"{self.where}{key} = {found!r:.80} is not supported, only {value!r}")

    def refuse_others(self, harmless: frozenset[str]) -> None:
        """Refuse, by name, a key that nobody has read and that is not known to change nothing."""
        for key, value in self.values.items():
            if key not in self.used and key not in harmless and value not in (None, {}, []):
                raise InputError(
                    f"{self.where}{key} = {value!r:.80} is a key that is not known here: it might change what "
                    "the model computes"
                )
