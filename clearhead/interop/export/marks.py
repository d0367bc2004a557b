"""What other programs must know of a run's texts: how long they are, how they end, which tokens are never written."""

from clearhead.decoding.load import LoadedModel


def end_of_text(loaded: LoadedModel) -> int | None:
    """The token with which a text ends; in a stream of text there is none."""
    apart = loaded.model.config.kind == "encoder-decoder" or loaded.documents != "none"
    return loaded.tokenizer.eos_id if apart else None


def forbidden_marks(loaded: LoadedModel) -> list[int]:
    """Padding and the beginning, unless that is also the end."""
    marks = {loaded.tokenizer.pad_id, loaded.tokenizer.bos_id} - {None, end_of_text(loaded)}
    return sorted(mark for mark in marks if mark is not None)


def spare_rows(loaded: LoadedModel) -> list[int]:
    """Rows of the embedding that no token has."""
    tokenizer = loaded.tokenizer
    return [*tokenizer.unused(), *range(tokenizer.size, loaded.model.config.vocab_size)]


def longest(loaded: LoadedModel) -> int:
    """Rows of the table of positions: for the longest source and what may be written of it."""
    settings, room = loaded.settings, loaded.model.config.positions.max_length
    return room or 1 << (settings.max_source + max(settings.max_extra, settings.max_tokens)).bit_length()


def runs_of(numbers: list[int]) -> str:
    """[0, 1, 7, 8, 9] as a line of Python that stays short however many there are: [0, 1, *range(7, 10)]."""
    parts: list[str] = []
    start = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] != numbers[place - 1] + 1:
            run = numbers[start:place]
            parts += [f"*range({run[0]}, {run[-1] + 1})"] if len(run) > 2 else map(str, run)
            start = place
    return f"[{', '.join(parts)}]"
