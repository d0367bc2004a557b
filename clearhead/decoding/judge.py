"""BLEU and chrF of what a model writes by itself, for the validations of a training that is judged by them."""

from collections.abc import Callable

from clearhead.data.splits import Splits
from clearhead.decoding.evaluation import corpus_scores
from clearhead.decoding.load import LoadedModel
from clearhead.model import Transformer

MOST = 1000  # validation examples that are translated each time


def judge(splits: Splits) -> Callable[[Transformer], dict[str, float]]:
    """Scores of greedy translations of the first validation examples, for `clearhead.training.session.train`."""

    def scores(model: Transformer) -> dict[str, float]:
        examples = splits.validation.examples(MOST)
        place = next(model.parameters()).device.type
        loaded = LoadedModel(model, splits.tokenizer, device=place, source_tokenizer=splits.source_tokenizer)
        made = loaded.translate([one.source for one in examples], beam_size=1)
        found = corpus_scores([one.text for one in made], [one.target for one in examples])
        return {name: found[name]["score"] for name in ("BLEU", "chrF")}

    return scores
