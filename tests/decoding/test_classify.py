"""The picture of what a classifier takes for what."""

import numpy as np

from clearhead.decoding.classify import draw_confusion


def test_a_confusion_has_its_number_in_the_middle_of_its_cell() -> None:
    table = np.eye(20, dtype=np.int64)
    table[0, 1] = 7
    made = draw_confusion(table, [f"label {n}" for n in range(20)], "test")
    made.draw_without_rendering()
    axes = made.axes[0]
    places = {}
    for text in axes.texts:
        box = text.get_window_extent()
        column, row = axes.transData.inverted().transform(((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2))
        assert abs(column - round(column)) < 0.05
        assert abs(row - round(row)) < 0.05
        places[round(row), round(column)] = text.get_text()
    assert places == {(0, 1): "7", **{(n, n): "1" for n in range(20)}}


def test_its_colours_are_shares_from_none_to_all_of_a_row() -> None:
    """Also where no row is all one colour, so that two pictures can be compared."""
    made = draw_confusion(np.array([[6, 4], [5, 5]]), ["a", "b"], "test")
    (image,) = made.axes[0].images
    assert image.get_clim() == (0, 1)
    assert image.get_array().tolist() == [[0.6, 0.4], [0.5, 0.5]]


def test_a_picture_of_many_labels_does_not_grow_without_end() -> None:
    few, many, more = (
        draw_confusion(np.eye(n, dtype=np.int64), [str(i) for i in range(n)], "test") for n in (5, 76, 90)
    )
    assert few.get_figheight() < 5
    assert many.get_figheight() == more.get_figheight() == 20
