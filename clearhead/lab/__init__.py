"""The lab: claims about Transformers as experiments anyone can rerun.

Read `experiment` (what an experiment is), then any file of `experiments/`; `runner` and `store` run them and keep
what they measured, `report` shows it. `docs/adding-an-experiment.md` says how to add one.
"""
