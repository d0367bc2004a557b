"""Decoding: from a trained model to text. Read in this order:

steps (next-token logits, one step at a time, on the KV cache) · greedy · sample · beam · constraints (what a search is
not allowed to write), then scoring, evaluation, alignment and pictures, and load, which puts them behind one object.
engine, with the matrices of prepared, is the fast twin of steps.
"""
