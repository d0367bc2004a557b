"""One experiment a file. Each begins with its claim, and ends with `EXPERIMENT`."""
