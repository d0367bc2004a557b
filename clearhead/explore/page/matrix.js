// A head as a picture: one pixel for each weight, scaled without smoothing, so that 512 tokens cost as little as twelve.
// What is hidden is hatched, and nothing else is. A cross-hair and a lens lie on a second canvas above it.
import { css, rgb, ramp, table } from "./colour.js";
import { h, short } from "./dom.js";
import { f } from "./numbers.js";

const LENS = 24,
  SPOT = 9; // cells of the lens in each direction, and their pixels
const LETTERS = 5, // of a label
  BARE = 8; // pixels beside a head without labels
const ratio = () => Math.min(3, window.devicePixelRatio || 1);

/** A canvas of so many pixels of the page, and its drawing context. */
export function sheet(width, height, props = {}) {
  const by = ratio(),
    made = h("canvas", {
      width: Math.round(width * by),
      height: Math.round(height * by),
      style: { width: `${width}px`, height: `${height}px` },
      ...props,
    });
  const context = made.getContext("2d");
  context.scale(by, by);
  return { canvas: made, context };
}

/** A canvas with what another shows: pictures are kept, elements are not, because an element can be in one place only. */
export function copied(canvas) {
  const made = h("canvas", { width: canvas.width, height: canvas.height, class: canvas.className });
  Object.assign(made.style, { width: canvas.style.width, height: canvas.style.height });
  made.getContext("2d").drawImage(canvas, 0, 0);
  return made;
}

/** The weight that gets the darkest shade: 1, but in long texts, where all weights are small, the head's own largest. */
export function darkest({ data }, long) {
  if (!long) return 1;
  let most = 0;
  for (const value of data) if (value > most) most = value;
  return most || 1;
}
export const isLong = ({ shape }) => Math.max(...shape) > 64;

/** One pixel for each cell; hidden cells stay clear. */
function pixels({ shape: [rows, columns], data, hidden }, most) {
  const made = document.createElement("canvas"),
    colours = table(),
    image = new ImageData(columns, rows);
  made.width = columns;
  made.height = rows;
  for (let row = 0, at = 0; row < rows; row++)
    for (let column = 0; column < columns; column++, at++) {
      if (hidden(row, column)) continue;
      const from = 4 * Math.round(255 * Math.max(0, Math.min(1, data[at] / most))),
        to = 4 * at;
      for (let i = 0; i < 4; i++) image.data[to + i] = colours[from + i];
    }
  made.getContext("2d").putImageData(image, 0, 0);
  return made;
}

/** The picture at a place of a canvas, each cell `wide` × `high` pixels, with hatching where it is hidden. */
export function paint(context, head, x, y, wide, high, most = 1) {
  const [rows, columns] = head.shape;
  hatch(context, head, x, y, wide, high);
  context.imageSmoothingEnabled = false;
  context.drawImage(pixels(head, most), x, y, columns * wide, rows * high);
  context.strokeStyle = css("--line");
  context.lineWidth = 1;
  context.strokeRect(x + 0.5, y + 0.5, columns * wide - 1, rows * high - 1);
}

function hatch(context, { shape: [rows, columns], hidden }, x, y, wide, high) {
  context.save();
  context.beginPath();
  let any = false;
  for (let row = 0; row < rows; row++)
    for (let from = 0; from < columns; from++) {
      let to = from;
      while (to < columns && hidden(row, to)) to++;
      if (to > from) {
        context.rect(x + from * wide, y + row * high, (to - from) * wide, high);
        any = true;
        from = to;
      }
    }
  if (any) {
    context.clip();
    context.strokeStyle = css("--hatch");
    context.lineWidth = 1;
    context.beginPath();
    const tall = rows * high;
    for (let i = -tall; i < columns * wide; i += 5) {
      context.moveTo(x + i, y + tall);
      context.lineTo(x + i + tall, y);
    }
    context.stroke();
  }
  context.restore();
}

/** Where things stand in the opened head. Up to 32 tokens have labels (slanted, if they are too long for a cell), up to
 *  64 slanted ones, more none. Where one side is much longer, cells are oblong, so that a short answer to a long text
 *  stays readable. */
export function layout({ rows, columns }, room) {
  const most = Math.max(rows.length, columns.length),
    letters = tokens => Math.min(LETTERS, Math.max(...tokens.map(({ text }) => [...short(text)].length)));
  const side = rows.length <= 64 ? Math.round(letters(rows) * 9.2) + 12 : BARE,
    space = Math.max(80, room - side - (columns.length <= 64 ? LETTERS * 4 : 4)),
    fits = space / columns.length;
  let wide =
    most <= 32
      ? Math.max(8, Math.min(30, Math.floor(fits)))
      : most <= 64
        ? Math.min(10, fits)
        : Math.min(fits, Math.min(space, 640) / most);
  let high = wide;
  if (3 * rows.length < columns.length) high = Math.max(high, Math.min(20, 240 / rows.length));
  if (3 * columns.length < rows.length) wide = Math.max(wide, Math.min(fits, 20, 240 / columns.length));
  const named = rows.length <= 64 && high >= 8,
    upright = columns.length <= 32 && letters(columns) <= Math.max(1, Math.floor(wide / 8.5)),
    labels = columns.length > 64 || wide < 8 ? "none" : upright ? "all" : "slanted";
  const x = named ? side : BARE,
    lean = letters(columns) * 6, // how high and how far to the side a slanted label goes
    y = { none: BARE, all: 30, slanted: lean + 14 }[labels];
  const beyond = labels === "slanted" ? Math.max(4, lean - wide / 2) : 4;
  return {
    ...{ x, y, wide, high, named, labels },
    width: x + columns.length * wide + beyond,
    height: y + rows.length * high + 4,
  };
}

/** The opened head without what is chosen in it. */
export function drawHead(head, sides, place) {
  const { canvas, context } = sheet(place.width, place.height, { class: "big" }),
    { x, y, wide, high } = place,
    font = cell => `${cell < 12 ? 10 : Math.max(12, Math.min(15, cell * 0.62))}px ${css("--mono")}`;
  paint(context, head, x, y, wide, high, darkest(head, isLong(head)));
  context.textBaseline = "middle";
  context.fillStyle = css("--ink");
  context.font = font(high);
  context.textAlign = "right";
  if (place.named) sides.rows.forEach(({ text }, i) => context.fillText(cut(text, LETTERS), x - 6, y + (i + 0.5) * high));
  if (place.labels === "none") return canvas;
  context.font = font(wide);
  sides.columns.forEach(({ text }, j) => {
    const middle = x + (j + 0.5) * wide;
    if (place.labels === "all") {
      context.textAlign = "center";
      context.fillText(cut(text, Math.max(1, Math.floor(wide / 8.5))), middle, y - 12);
    } else {
      context.save();
      context.translate(middle, y - 4);
      context.rotate(-Math.PI / 4);
      context.textAlign = "left";
      context.fillText(cut(text, LETTERS), 0, 0);
      context.restore();
    }
  });
  return canvas;
}

export const cut = (text, most) => {
  const letters = [...short(text)];
  return letters.length > most ? letters.slice(0, most).join("") : letters.join("");
};

/** Cross-hair, the word "silenced", and in large heads the labels of what is chosen and, at `spot`, the lens. */
export function drawOver(canvas, head, sides, place, { silenced, spot }) {
  const context = canvas.getContext("2d"),
    by = ratio(),
    [rows, columns] = head.shape,
    { x, y, wide, high } = place,
    { row, column } = sides,
    down = row >= 0 && row < rows,
    across = column >= 0 && column < columns;
  context.setTransform(by, 0, 0, by, 0, 0);
  context.clearRect(0, 0, place.width, place.height);
  if (silenced) stroke(context, x, y, columns * wide, rows * high);
  context.strokeStyle = css("--pick");
  context.lineWidth = Math.min(wide, high) < 8 ? 1 : 1.5;
  if (down) context.strokeRect(x, y + row * high, columns * wide, high);
  if (across) context.strokeRect(x + column * wide, y, wide, rows * high);
  context.lineWidth = 3;
  if (down && across) context.strokeRect(x + column * wide - 1, y + row * high - 1, wide + 2, high + 2);
  if (down && !place.named) tag(context, sides.rows[row].text, x, y + (row + 0.5) * high);
  if (across && place.labels === "none")
    tag(context, sides.columns[column].text, x + (column + 0.5) * wide, y + 9, place.width);
  if (spot && (place.labels === "none" || !place.named)) lens(context, head, sides, place, spot);
}

/** A token along the cross-hair of a large head. */
function tag(context, text, x, y, most = Infinity) {
  const shown = cut(text, 12);
  context.font = `12px ${css("--mono")}`;
  const wide = context.measureText(shown).width + 8,
    left = Math.min(x, most - wide);
  context.fillStyle = css("--card");
  context.fillRect(left, y - 9, wide, 18);
  context.lineWidth = 1;
  context.strokeRect(left + 0.5, y - 8.5, wide - 1, 17);
  context.fillStyle = css("--ink");
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(shown, left + 4, y);
}

function stroke(context, x, y, wide, high) {
  context.globalAlpha = 0.78;
  context.fillStyle = css("--paper");
  context.fillRect(x, y, wide, high);
  context.globalAlpha = 1;
  context.strokeStyle = css("--bad");
  context.lineWidth = 3;
  context.beginPath();
  context.moveTo(x, y + high);
  context.lineTo(x + wide, y);
  context.stroke();
  context.fillStyle = css("--paper");
  context.fillRect(x + wide / 2 - 52, y + high / 2 - 16, 104, 32);
  context.fillStyle = css("--bad");
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.font = `600 17px ${css("--sans")}`;
  context.fillText("silenced", x + wide / 2, y + high / 2);
}

/** 24 × 24 cells around the pointer, with the names of the cell it is on. */
function lens(context, head, sides, place, { row, column }) {
  const [rows, columns] = head.shape,
    top = Math.max(0, Math.min(rows - LENS, row - LENS / 2)),
    left = Math.max(0, Math.min(columns - LENS, column - LENS / 2));
  const wide = Math.min(LENS, columns) * SPOT,
    high = Math.min(LENS, rows) * SPOT;
  const most = darkest(head, isLong(head));
  let x = place.x + (column + 3) * place.wide + 12,
    y = place.y + (row + 3) * place.high + 12;
  if (x + wide > place.width) x = place.x + (column - 3) * place.wide - wide - 12;
  if (y + high + 22 > place.height) y = Math.max(2, place.height - high - 26);
  x = Math.max(0, x);
  context.fillStyle = css("--card");
  context.fillRect(x - 2, y - 2, wide + 4, high + 26);
  for (let i = 0; i < Math.min(LENS, rows); i++)
    for (let j = 0; j < Math.min(LENS, columns); j++) {
      if (head.hidden(top + i, left + j)) continue;
      context.fillStyle = rgb(ramp(head.data[(top + i) * columns + left + j] / most));
      context.fillRect(x + j * SPOT, y + i * SPOT, SPOT, SPOT);
    }
  context.strokeStyle = css("--pick");
  context.lineWidth = 2;
  context.strokeRect(x + (column - left) * SPOT, y + (row - top) * SPOT, SPOT, SPOT);
  context.lineWidth = 1;
  context.strokeRect(x - 1.5, y - 1.5, wide + 3, high + 25);
  context.fillStyle = css("--ink");
  context.font = `13px ${css("--mono")}`;
  context.textAlign = "left";
  context.textBaseline = "middle";
  const value = head.hidden(row, column) ? "masked" : f(head.data[row * columns + column], 3);
  context.fillText(
    `${cut(sides.rows[row].text, 8)} → ${cut(sides.columns[column].text, 8)} ${value}`,
    x + 4,
    y + high + 12,
  );
}
