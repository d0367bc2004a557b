"""One command a file, found by being here: a function of the file's name, or a Typer called `app` for several."""
