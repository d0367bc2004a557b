"""What other people call the nonlinearities."""

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
NAMES = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}  # the first of several
