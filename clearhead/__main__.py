"""`python -m clearhead` is the `clearhead` command; torchrun needs it in this form."""

from clearhead.cli.main import main

main()
