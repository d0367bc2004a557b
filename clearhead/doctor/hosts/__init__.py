"""Small healthy Transformers that planted bugs live in.

Three models that share no code (a decoder-only, an encoder, an encoder-decoder) and one training loop; then three times
three more in other styles, each with its own loop, whose bugs were written blind when the probes stood. All are written
the way people write such models, so that a bug planted in one of their lines is a bug people really have.
"""
