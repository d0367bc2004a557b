"""What a model costs, part by part: counted in a pass without memory (account.py), or measured (clock.py)."""
