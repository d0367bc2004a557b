"""`clearhead plot`: loss, learning rate and gradient norm of a run, and what a classifier confuses, as pictures."""

import typer

from clearhead.cli.options import RunFolder


def plot(run: RunFolder) -> None:
    """Draw loss, learning rate and gradient norm by step into RUN/plots, as PNG and SVG; of a run with labels also
    which of them it takes for which, on its test data (or its validation data where there is none).

    \b
    Example:
      clearhead plot runs/dates
    """
    from clearhead.run import Run
    from clearhead.training.plot import plot, save

    opened = Run(run)
    for path in plot(opened):
        typer.echo(path)
    if "labels" in opened.settings.get("data", {}):
        from clearhead.decoding.classify import confusions, draw_confusion, label_settings, load_classifier

        settings, classifier = label_settings(opened), load_classifier(run)
        assert settings is not None
        for name, (table, _) in confusions(classifier, settings, recorded=opened.data_files()).items():
            right = f"{name}: {table.trace() / table.sum():.1%} of {table.sum():,} right"
            for path in save(draw_confusion(table, classifier.labels, right), opened, "confusion"):
                typer.echo(path)
