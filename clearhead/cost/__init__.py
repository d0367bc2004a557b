"""What a model costs, part by part: counted without running it (account.py), or measured (clock.py)."""
