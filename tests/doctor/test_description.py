"""Descriptions: what a builder may look like, what is said about bad ones, and that the caller's world is unchanged."""

import random
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from clearhead import doctor
from clearhead.doctor.subject import Subject
from clearhead.errors import InputError


class Bag(nn.Module):
    """The smallest model that can be described: it adds up the embeddings so far."""

    def __init__(self, vocab_size: int = 50, d_model: int = 16, max_len: int = 640) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.position = nn.Embedding(max_len, d_model)
        self.head = nn.Linear(d_model, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) * self.position(torch.arange(tokens.size(1)))
        return self.head(x.cumsum(dim=1))


def plain(model: nn.Module, tokens: Tensor) -> Tensor:
    return model(tokens)


def test_a_class_is_a_builder_and_common_names_of_sizes_are_understood() -> None:
    subject = Subject(doctor.CausalLM(build=Bag, forward=plain))
    assert subject.sizes["vocab"] == subject.vocab == 61
    model = subject.model()
    assert isinstance(model, Bag)
    assert model.embedding.weight.shape == (61, 24)


def test_a_builder_without_arguments_is_enough() -> None:
    report = doctor.check(doctor.CausalLM(build=lambda: Bag(), forward=plain), only=["future", "scale"])
    assert report.passed == ("future",)
    assert "takes no heads" in report.not_armed["scale"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"build": lambda vocab: 1 / 0}, "build(vocab=61) raised ZeroDivisionError"),
        ({"build": lambda: "a model"}, "build() returned str, wanted an nn.Module"),
        ({"forward": lambda model, tokens: model(tokens)[:, -1]}, "forward returned shape (3, 61) for tokens"),
        ({"forward": lambda model, tokens: model(tokens)[..., :7]}, "7 logits, wanted one for each of 61"),
        ({"forward": lambda model, tokens: model(tokens).transpose(0, 1)}, "wanted (3, 11, ...)"),
        ({"forward": lambda model, tokens: None}, "forward returned NoneType"),
        ({"forward": lambda model, tokens: model(tokens.float())}, "forward(model, tokens) raised RuntimeError"),
        ({"forward": lambda model, tokens: model(tokens.zero_())}, "changed its input tokens in place"),
    ],
)
def test_bad_descriptions_are_told_kindly(fields: dict, words: str) -> None:
    with pytest.raises(InputError) as told:
        doctor.check(doctor.CausalLM(**{"build": Bag, "forward": plain, **fields}))
    assert words in str(told.value)


def test_something_else_than_a_description_is_refused() -> None:
    with pytest.raises(InputError, match="found Bag"):
        doctor.check(Bag())  # type: ignore[arg-type]


def test_an_unknown_probe_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"no probe is called 'futur'; there are mode, future, prefix"):
        doctor.check(doctor.CausalLM(build=Bag, forward=plain), only=["futur"])


def test_nothing_armed_is_said_and_not_called_healthy() -> None:
    with pytest.raises(InputError, match=r"nothing could be examined .*no cached\(\) described"):
        doctor.check(doctor.CausalLM(build=Bag, forward=plain), only=["cache"])


def test_a_forward_that_ignores_the_mask_is_reported_as_such() -> None:
    spec = doctor.CausalLM(build=Bag, forward=lambda model, tokens, real=None: model(tokens))
    report = doctor.check(spec, only=["padding"])
    assert [finding.id for finding in report.findings] == ["padding.unused"]
    assert "does not pass it on" in report.findings[0].message


def test_the_users_model_and_world_stay_as_they_were() -> None:
    model = Bag().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.manual_seed(5)
    random.seed(5)
    torch.set_default_dtype(torch.float64)
    threads = torch.get_num_threads()
    try:
        state, python_state = torch.get_rng_state(), random.getstate()
        doctor.check(doctor.CausalLM(build=lambda: model, forward=plain))
        assert torch.equal(state, torch.get_rng_state())
        assert python_state == random.getstate()
        assert torch.get_default_dtype() == torch.float64
        assert torch.get_num_threads() == threads
        assert torch.is_grad_enabled()
    finally:
        torch.set_default_dtype(torch.float32)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
        assert tensor.dtype == before[name].dtype


def test_reports_repeat_to_the_letter() -> None:
    spec = doctor.CausalLM(build=Bag, forward=plain)
    assert doctor.check(spec, quick=True).to_json() == doctor.check(spec, quick=True).to_json()


def test_it_needs_torch_alone_and_nothing_of_our_model() -> None:
    code = (
        "import sys; sys.modules.update(rich=None, typer=None, transformers=None, safetensors=None, regex=None)\n"
        "from tests.doctor.test_description import Bag, plain\n"
        "from clearhead import doctor\n"
        "print(doctor.check(doctor.CausalLM(build=Bag, forward=plain), only=['future']).healthy)\n"
        "ours = {name.split('.')[1] for name in sys.modules if name.startswith('clearhead.')}\n"
        "print(sorted(ours))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True", "['doctor', 'errors', 'lazy']"]
