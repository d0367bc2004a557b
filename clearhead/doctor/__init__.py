"""The doctor: probes for bugs that do not crash, in anyone's PyTorch Transformer.

    from clearhead import doctor

    spec = doctor.CausalLM(build=MyModel, forward=lambda model, tokens: model(tokens))
    print(doctor.check(spec))

It needs only torch and knows nothing of Clearhead's own models. Names are loaded on first use.
"""

from typing import TYPE_CHECKING

from clearhead.lazy import on_first_use

if TYPE_CHECKING:  # the names of _HOME once more, because a type checker does not follow __getattr__
    from clearhead.doctor.describe import CausalLM as CausalLM
    from clearhead.doctor.describe import Encoder as Encoder
    from clearhead.doctor.describe import EncoderDecoder as EncoderDecoder
    from clearhead.doctor.describe import Reference as Reference
    from clearhead.doctor.examine import check as check
    from clearhead.doctor.finding import Cause as Cause
    from clearhead.doctor.finding import Finding as Finding
    from clearhead.doctor.finding import Report as Report
    from clearhead.doctor.infer.load import import_file as import_file
    from clearhead.doctor.pytest_plugin import parametrize as parametrize
    from clearhead.doctor.ready import from_torch as from_torch
    from clearhead.doctor.ready import from_transformers as from_transformers

_HOME = {
    "CausalLM": "describe",
    "Encoder": "describe",
    "EncoderDecoder": "describe",
    "Reference": "describe",
    "check": "examine",
    "import_file": "infer.load",
    "parametrize": "pytest_plugin",
    "Report": "finding",
    "Finding": "finding",
    "Cause": "finding",
    "from_torch": "ready",
    "from_transformers": "ready",
}

__all__ = [*_HOME]
__getattr__ = on_first_use(__name__, _HOME)
