// One head, opened: its weights with labels, a cross-hair, a legend, and what can be done with it.
import { isDark, ramp, rgb } from "./colour.js";
import { h, say } from "./dom.js";
import { copied, darkest, drawHead, drawOver, isLong, sheet } from "./matrix.js";
import { clamp, f } from "./numbers.js";

const bases = new Map();

export function opened(app, pass, sides, head, place, full, worth) {
  const { state, set, work } = app,
    { at } = state,
    name = `${at}.${state.head + 1}`,
    off = state.off.includes(name),
    key = `${pass.id} ${name} ${place.width} ${isDark()}`;
  if (!bases.has(key)) {
    if (bases.size > 12) bases.clear();
    bases.set(key, drawHead(head, sides, place));
  }
  const [rows, columns] = head.shape,
    { row, column } = sides,
    hidden = head.hidden(row, column),
    value = head.data[row * columns + column];
  const words = (i, j) =>
    `${sides.rows[i].text} looks at ${sides.columns[j].text}: ${head.hidden(i, j) ? "masked" : f(head.data[i * columns + j])}`;
  const { canvas: over } = sheet(place.width, place.height, {
    class: "over",
    id: "big",
    tabindex: 0,
    role: "application",
    "aria-roledescription": "attention matrix",
    "data-key": "big",
    "aria-label": `${full}: ${words(row, column)}. Arrow keys move, Enter opens the cell.`,
  });
  wire(over, app, head, sides, place, { off, words, rows, columns });
  const entropy = pass.attentions.find(one => one.at === at).entropy[state.head],
    amount = worth?.get(name);
  return h(
    "div",
    { class: "opened" },
    h("div", { class: "stack" }, copied(bases.get(key)), over),
    h(
      "div",
      { class: "legend" },
      "0",
      rampBar(),
      isLong(head) ? `${f(darkest(head, true), 2)}: this head’s largest` : "1",
      sides.kind === "self" && [h("span", { class: "hatch" }), "masked: may not look"],
    ),
    h(
      "dl",
      { class: "facts" },
      h("dt", {}, "chosen cell"),
      h("dd", { id: "chosen" }, `${cellName(sides)} = ${hidden ? "masked" : f(value, 4)}`),
      h("dt", {}, "entropy"),
      h("dd", {}, `${f(entropy, 2)} bits of at most ${f(Math.log2(columns), 2)}`),
      h("dt", {}, "worth"),
      h("dd", { id: "worth" }, amount === undefined ? "not measured" : `${f(amount, 3)} nats`),
    ),
    h(
      "div",
      { class: "buttons" },
      work.source.alive &&
        h(
          "button",
          {
            class: "btn",
            id: "silence",
            "data-key": "silence",
            "aria-pressed": String(off),
            onclick: () => {
              set({ off: off ? state.off.filter(one => one !== name) : [...state.off, name], before: 0 });
              say(off ? `${name} speaks again` : `${name} silenced`);
            },
          },
          off ? "Let it speak again" : "Silence this head",
        ),
      h(
        "button",
        { class: "btn", id: "open", "data-key": "open", onclick: () => set({ view: "cell" }) },
        "Open this cell",
      ),
    ),
    asTable(head, sides, "table"),
  );
}

/** A decoder's row is named by what it predicts and by what it has read. */
export function cellName({ kind, rows, read, columns, row, column }) {
  const who = kind === "encoder" ? rows[row].text : `${rows[row].text} (having read ${read[row].text})`;
  return `${who} → ${columns[column].text}`;
}

export const rampBar = () =>
  h("span", {
    class: "ramp",
    style: { background: `linear-gradient(90deg,${[0, 0.2, 0.4, 0.6, 0.8, 1].map(x => rgb(ramp(x))).join()})` },
  });

function wire(canvas, { set }, head, sides, place, { off, words, rows, columns }) {
  let spot = null, // the cell under the pointer
    dragged = false, // by a finger or a pressed button: the cross-hair follows, and the cell is chosen at the end
    waiting = 0;
  const draw = () =>
    drawOver(canvas, head, dragged && spot ? { ...sides, ...spot } : sides, place, { silenced: off, spot });
  const cell = event => {
    const box = canvas.getBoundingClientRect(),
      column = Math.floor((event.clientX - box.left - place.x) / place.wide),
      row = Math.floor((event.clientY - box.top - place.y) / place.high);
    return row >= 0 && row < rows && column >= 0 && column < columns ? { row, column } : null;
  };
  const follow = next => {
    spot = next;
    if (!waiting)
      waiting = requestAnimationFrame(() => {
        waiting = 0;
        draw();
      });
  };
  canvas.addEventListener("pointerdown", event => {
    dragged = true;
    canvas.setPointerCapture(event.pointerId);
    follow(cell(event));
  });
  canvas.addEventListener("pointermove", event => {
    const here = cell(event) ?? (dragged ? spot : null);
    canvas.title = here ? words(here.row, here.column) : "";
    if (dragged && here) told(canvas).textContent = words(here.row, here.column);
    follow(here);
  });
  canvas.addEventListener("pointerleave", () => dragged || follow(null));
  canvas.addEventListener("pointercancel", () => {
    dragged = false;
    follow(null);
  });
  canvas.addEventListener("pointerup", event => {
    const here = cell(event) ?? spot;
    dragged = false;
    if (here) {
      set(sides.pick(here.row, here.column));
      say(words(here.row, here.column));
    }
  });
  canvas.addEventListener("keydown", event => {
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Enter") {
      event.preventDefault();
      set({ view: "cell" });
    }
    if (!by) return;
    event.preventDefault();
    const row = clamp(sides.row + by[0], 0, rows - 1),
      column = clamp(sides.column + by[1], 0, columns - 1);
    set(sides.pick(row, column));
    say(words(row, column));
  });
  draw();
}

const told = canvas => canvas.closest(".opened").querySelector("#chosen");

/** The head as a table, built when it is opened: of more than 32 tokens, those around the chosen cell. */
export function asTable(head, { rows, columns, row, column }, key) {
  const box = h("div", { class: "tableBox", tabindex: 0, role: "group", "aria-label": "Weights as a table, scrolls" }),
    around = (at, many) => {
      const from = Math.max(0, Math.min(at - 16, many - 32));
      return Array.from({ length: Math.min(32, many) }, (_, i) => from + i);
    };
  const build = () => {
    const down = around(row, rows.length),
      across = around(column, columns.length);
    box.replaceChildren(
      h(
        "table",
        { class: "cellsTable" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("td", {}),
            across.map(j => h("th", { scope: "col" }, columns[j].text)),
          ),
        ),
        h(
          "tbody",
          {},
          down.map(i =>
            h(
              "tr",
              {},
              h("th", { scope: "row" }, rows[i].text),
              across.map(j => h("td", {}, head.hidden(i, j) ? "masked" : f(head.data[i * columns.length + j]))),
            ),
          ),
        ),
      ),
    );
  };
  return h(
    "details",
    { "data-key": key, ontoggle: event => event.target.open && build() },
    h(
      "summary",
      { class: "small" },
      rows.length > 32 || columns.length > 32 ? "As a table, 32 × 32 around the chosen cell" : "As a table",
    ),
    box,
  );
}
