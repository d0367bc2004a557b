"""Attention by name and as pictures, on tasks whose alignment is known: copying and reversing."""

import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.image
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

import clearhead
from clearhead.decoding.alignment import entropy, one_alignment
from clearhead.decoding.attention import CROSS, ENCODER, MASKED, Mark, Panel, attention_panels, names
from clearhead.decoding.load import LoadedModel
from clearhead.decoding.pictures import draw, drawable, figure, title_of
from clearhead.errors import InputError
from clearhead.training.config import load_recipe
from clearhead.training.session import train
from tests.decoding.models import byte_tokenizer, opinionated, small_run

LEARN = (
    "data.symbols=8",
    "data.longest=6",
    "data.examples=2000",
    "data.held_out=50",
    "model.d_model=32",
    "model.d_ff=64",
    "model.heads=2",
    "training.steps=200",
    "training.validate_every=200",
    "training.max_tokens=512",
    "training.warmup=50",
    "training.peak=6e-3",
)


@pytest.mark.parametrize("task", [pytest.param("copy", marks=pytest.mark.long), "reverse"])
def test_a_known_alignment_is_found(task: str, tmp_path: Path) -> None:
    """Trained for seconds, the model must link each output to the input it was made of; off by one would be seen."""
    train(load_recipe("copy", [f'data.task="{task}"', *LEARN]), tmp_path / "run")
    model = clearhead.load(tmp_path / "run")
    lines = ["1 2 3 4 5", "7 0 2", "3 6 1 5", "0 4 7 2 5 6", "6 5", "2 7 1 0"]
    right = total = bright = 0
    for line, found in zip(lines, model.translate(lines, alignment=True), strict=True):
        numbers = line.split()
        wanted = numbers if task == "copy" else numbers[::-1]
        if found.text != " ".join(wanted):
            continue
        assert found.alignment is not None
        panels = [panel for panel in attention_panels(model, line) if panel.kind == CROSS]
        assert panels[0].rows == [*wanted, "</s>"]
        assert panels[0].columns == [*numbers, "</s>"]
        picture = panels[found.alignment.layer - 1].weights.mean(0)
        for link in found.alignment.links:
            source = link.target if task == "copy" else len(numbers) - 1 - link.target
            right += link.source == source
            bright += int(picture[link.target].argmax()) == source
            total += 1
    assert total >= 15, "the model did not learn"
    assert right >= 0.85 * total
    assert bright == right


def test_the_most_certain_layer_aligns() -> None:
    even = torch.full((3, 4), 0.25)
    sharp = torch.tensor([[0.0, 1, 0, 0], [0, 0, 0.9, 0.1], [0.25, 0.25, 0.25, 0.25]])
    found = one_alignment([even, sharp], 2)
    assert found.layer == 2
    assert [(link.target, link.source) for link in found.links] == [(0, 1), (1, 2)]


def test_entropy() -> None:
    weights = torch.tensor([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25] * 4])
    assert entropy(weights).tolist() == pytest.approx([0, 1, 2])


def test_panels_of_a_translation(tmp_path: Path) -> None:
    model = clearhead.load(small_run(tmp_path / "run", "encoder-decoder"))
    panels = attention_panels(model, "the cat", target="a dog\n")
    assert [(panel.kind, panel.layer) for panel in panels] == [(k, n) for k in (ENCODER, MASKED, CROSS) for n in (1, 2)]
    tokens = model.tokenizer.encode_ordinary("a dog\n")
    for panel in panels:
        assert panel.weights.shape[1:] == (len(panel.rows), len(panel.columns))
        torch.testing.assert_close(panel.weights.sum(-1), torch.ones(panel.weights.shape[:2]))
        assert all(0 <= bits <= math.log2(len(panel.columns)) for bits in panel.entropies)
    masked = panels[2]
    assert len(masked.rows) == len(tokens) + 1
    assert masked.columns[0] == "<s>"
    assert masked.rows[-1] == "</s>"
    assert masked.rows[:-1] == masked.columns[1:]
    assert masked.rows[-2] == "⏎"
    assert "␣" in "".join(masked.rows)
    assert torch.equal(masked.may_attend, torch.ones_like(masked.may_attend).tril())
    assert (masked.weights[:, ~masked.may_attend] == 0).all()
    assert panels[4].may_attend.all()


def test_panels_of_other_models(tmp_path: Path) -> None:
    writer = clearhead.load(small_run(tmp_path / "w", "decoder", data={"text": "x", "documents": "line"}))
    (first, _) = attention_panels(writer, "the cat")
    assert first.kind == MASKED
    assert first.columns[0] == "<s>"
    assert first.rows[:-1] == first.columns[1:]
    encoder = clearhead.load(small_run(tmp_path / "e", "encoder"))
    assert [panel.kind for panel in attention_panels(encoder, "the cat")] == [ENCODER] * 2
    with pytest.raises(InputError, match="a target is for models that translate"):
        attention_panels(encoder, "the cat", target="x")
    with pytest.raises(InputError, match="the text has no tokens: nothing to look at"):
        attention_panels(encoder, "")
    model = opinionated(0, "llama", vocab_size=275, kv_heads=1, window=3).float()
    (first, _) = attention_panels(LoadedModel(model, byte_tokenizer()), "the cat sat")
    assert first.may_attend.sum(-1).max() == 3


def test_white_space_and_bytes_can_be_read_on_an_axis() -> None:
    tokenizer = byte_tokenizer()
    loaded = LoadedModel(opinionated(0, "llama", vocab_size=275, kv_heads=1).float(), tokenizer)
    ids = tokenizer.encode_ordinary("x \n\r\t\x07") + tokenizer.encode_bytes(b"\xe6")
    assert "".join(names(loaded, ids)) == "x␣⏎␍⇥U+0007\\xe6"


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_pictures(tmp_path: Path, ending: str) -> None:
    model = clearhead.load(small_run(tmp_path / "run", "encoder-decoder"))
    panels = attention_panels(model, "a $ </script>日", target="a dog")
    path = tmp_path / f"picture{ending}"
    draw(panels, path, "a $ </script>日")
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name, "run"]
    if ending == ".png":
        image = matplotlib.image.imread(path)
        assert image.shape[0] > 500
        assert len(set(map(tuple, image[::7, ::7].reshape(-1, 4).tolist()))) > 20
    elif ending == ".svg":
        texts = [t.text for t in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]
        assert "decoder cross-attention, layer 2" in texts
        assert sum("bits" in str(text) for text in texts) == 12
        assert "</s>" in texts
        assert any("share of a row's attention" in str(text) for text in texts)


def test_each_head_is_drawn_once_with_its_marks_and_a_colour_bar(tmp_path: Path) -> None:
    panels = attention_panels(clearhead.load(small_run(tmp_path / "run", "encoder-decoder")), "a cat", target="a dog")
    cross = [replace(panels[4], marks=(Mark(1, range(1, 3), range(3), "reads the cat"),)), panels[5]]
    made = figure(cross, "a cat  →  a dog", "framed: the cat")
    scale, *heads = made.axes
    assert scale.get_label() == "scale"
    assert scale.get_xlim() == (0, 1)
    titles = [axis.get_title().split("   ")[0] for axis in heads]
    assert titles == ["head 1", "head 2"] * 2
    assert heads[1].get_title().endswith("\nreads the cat")
    assert [len(axis.patches) for axis in heads] == [0, 1, 0, 0]
    assert heads[1].patches[0].get_bbox().bounds == (-0.5, 0.5, 3, 2)
    assert {"a cat  →  a dog", "framed: the cat"} <= {text.get_text() for text in made.texts}


def test_nothing_is_drawn_over_anything_else_or_outside(tmp_path: Path) -> None:
    """Pictures, titles, notes and the words beside the colour bar, for a wide picture and for a small one."""
    panels = attention_panels(clearhead.load(small_run(tmp_path / "run", "encoder-decoder")), "a cat", target="a dog")
    for shown, title, note in ((panels, "a title " * 30, "a note " * 60), (panels[4:5], "a cat", "")):
        made = figure(shown, title, note)
        renderer = FigureCanvasAgg(made).get_renderer()
        boxes = [part.get_window_extent(renderer) for part in (*made.axes, *made.texts)]
        assert len(boxes) > 4
        for number, box in enumerate(boxes):
            assert box.x0 >= 0
            assert box.y0 >= 0
            assert box.x1 <= made.bbox.x1
            assert box.y1 <= made.bbox.y1
            for other in boxes[:number]:
                apart = box.x1 <= other.x0 or other.x1 <= box.x0 or box.y1 <= other.y0 or other.y1 <= box.y0
                assert apart, f"{box} and {other}"


def test_every_token_has_room_in_a_picture() -> None:
    """At least a sixth of an inch each, however long the text; a short one is drawn larger."""
    for rows, columns in ((3, 40), (40, 3)):
        may_attend = torch.ones(rows, columns, dtype=torch.bool)
        panel = Panel(CROSS, 1, torch.full((1, rows, columns), 0.1), may_attend, ["a"] * rows, ["b"] * columns)
        made = figure([panel], "a title")
        place = made.axes[1].get_position()
        wide, high = place.width * made.get_figwidth(), place.height * made.get_figheight()
        assert min(wide / columns, high / rows) > 1 / 6
        assert min(wide, high) > 1.5


def test_a_title_says_what_was_read_and_answered() -> None:
    assert title_of("3 mars 2029", "2029-03-03") == "3 mars 2029  →  2029-03-03"
    assert title_of("3 mars 2029", "1", given=True) == "3 mars 2029  →  1  (given)"
    assert title_of("3 mars 2029", "") == "3 mars 2029"


def test_pictures_that_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in one of \.png"):
        draw([], tmp_path / "x.bmp", "")
    with pytest.raises(InputError, match="cannot write"):
        draw([], tmp_path / "no" / "x.svg", "")


def test_what_no_font_can_draw_has_a_code_point() -> None:
    assert drawable("cat März") == "cat März"
    assert drawable("\U0001f9ff$") in ("U+1F9FF\\$", "\U0001f9ff\\$")
