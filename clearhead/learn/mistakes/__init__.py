"""How each exercise usually goes wrong: our own part with a few characters changed, and the cause in words."""
