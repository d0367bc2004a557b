"""A translation piece by piece as it is written. Greedy search knows each token for good as soon as it has chosen it;
a beam does not, so its translation comes in one piece."""

from collections.abc import Iterator
from typing import Any

import torch

from clearhead.decoding.greedy import walk
from clearhead.decoding.load import LoadedModel
from clearhead.decoding.scoring import right_pad


def stream_translation(loaded: LoadedModel, text: str, **changes: Any) -> Iterator[str]:
    """The same text as `translate` gives; incomplete characters are held back."""
    settings = loaded.settings.changed(changes)
    if settings.beam_size > 1:
        yield loaded.translate([text], **changes)[0].text
        return
    source, prompt, end = loaded.source(text)[0], [loaded._start], loaded._end
    limit = loaded._limit(len(source) + settings.max_extra, 1)
    constraints, decoder = loaded._beam_search(settings, 1).constraints, loaded.tokenizer.decoder([])
    with loaded._threads(), torch.inference_mode():
        steps = loaded._steps(*right_pad([source], loaded.device))
        logits = steps.start([prompt])
        written = walk(steps, logits, [prompt], [limit], end, constraints, with_log_probs=False)
    while True:
        # the mode and the threads are ours only while we compute, not while the caller has the piece
        with loaded._threads(), torch.inference_mode():
            step = next(written, None)
        if step is None:
            break
        if step[0].token != end:
            yield decoder.push(step[0].token)
    yield decoder.finish()
