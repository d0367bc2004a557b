// View 2, who looks at whom: which part of the text became this token? Every head as a thumbnail, one opened, arcs for
// the chosen token; a head can be silenced. Where a head looks is not what it is worth: that is measured.
import { drawArcs } from "./arcs.js";
import { isDark, ramp, rgb } from "./colour.js";
import { compare } from "./compare.js";
import { byId, h, narrow, say } from "./dom.js";
import { drawHead, drawOver, layout, paint, sheet } from "./matrix.js";
import { clamp, f } from "./numbers.js";
import { hiddenBy, titleOf } from "./work.js";

const ASK = {
  cross: "Which part of the text became this token?",
  decoder: "Which of its own tokens does it look back at?",
  encoder: "Whom does each token ask before it is read?",
};
const HOW = {
  cross:
    "Below, the token being written; above, the source. The thicker the line, the more of that token’s value is mixed in.",
  decoder: "Below, the token being written; above, the tokens read so far. What is not yet written is hidden.",
  encoder: "Below, the token that looks; above, those it looks at.",
};
const AUTOMATIC = { served: 96, here: 48 }; // tokens up to which worth is measured without being asked

export async function drawLook(app, pass, sides) {
  const { state, work, set } = app,
    { name, layer, kind } = titleOf(state.at),
    head = await work.head(pass, state.at, state.head);
  const worth = await measured(app, pass),
    room = byId("view").clientWidth || 700,
    place = layout(sides.rows.length, sides.columns.length, narrow() ? room : room - 40);
  const full = `${name}, layer ${layer}, head ${state.head + 1}`,
    columns = head.shape[1];
  const weights = state.mean
    ? await meanRow(work, pass, state.at, sides.row)
    : head.data.subarray(sides.row * columns, (sides.row + 1) * columns);
  const thumbs = await thumbnails(app, pass, worth);
  return [
    h("h2", {}, ASK[kind]),
    h(
      "p",
      { class: "lede" },
      state.mean ? `${name}, layer ${layer}, the mean over its heads. ` : `${full}. `,
      HOW[kind],
    ),
    drawArcs(weights, sides, head.hidden, room, set),
    h(
      "p",
      {},
      h(
        "label",
        { class: "small soft" },
        h("input", {
          type: "checkbox",
          "data-key": "mean",
          checked: Boolean(state.mean),
          onchange: event => set({ mean: Number(event.target.checked) }),
        }),
        " mean over the heads of this layer",
      ),
    ),
    compare(app),
    h("div", { class: "cols block" }, thumbs, opened(app, pass, sides, head, place, full, worth)),
  ];
}

/** What heads are worth, if it is known or quickly found; else null, and a redraw when it is there. */
async function measured(app, pass) {
  const { work, redraw } = app,
    tokens = Math.max(pass.source.length, pass.read.length);
  if (!pass.answer.length) return null;
  const known = work.known(pass, "worth");
  if (known) return known;
  if (
    tokens <= AUTOMATIC[work.source.served ? "served" : "here"] ||
    work.source.alive === false ||
    app.measure === pass.id
  )
    setTimeout(() => work.worth(pass).then(redraw, () => {}), 0);
  return null;
}

async function meanRow(work, pass, at, row) {
  const { path } = pass.attentions.find(one => one.at === at),
    [all] = await work.tensors(pass, [{ name: `${path}.weights`, index: [0] }]);
  const [heads, rows, columns] = all.shape,
    made = new Float32Array(columns);
  for (let n = 0; n < heads; n++)
    for (let j = 0; j < columns; j++) made[j] += all.data[(n * rows + row) * columns + j] / heads;
  return made;
}

// ---- thumbnails ----------------------------------------------------------------------------------------------------

const painted = new Map(); // canvases by pass, head, size and theme

async function thumbnails(app, pass, worth) {
  const { state, work, model, set } = app,
    size = narrow() ? 46 : 50,
    found = await small(work, pass, size * 2),
    heads = [];
  for (const one of pass.attentions)
    one.entropy.forEach((entropy, n) =>
      heads.push({
        ...one,
        n,
        entropy,
        name: `${one.at}.${n + 1}`,
        worth: worth?.get(`${one.at}.${n + 1}`) ?? null,
        picture: found.get(`${one.at}.${n + 1}`),
      }),
    );
  const most = Math.max(1e-9, ...heads.map(one => one.worth ?? 0)),
    groups = [
      ["cross", ".cross"],
      ["decoder", "decoder."],
      ["encoder", "encoder."],
    ];
  const kinds = groups
    .map(([kind]) => [kind, heads.filter(one => titleOf(one.at).kind === kind)])
    .filter(([, some]) => some.length);
  const order = {
    worth: (a, b) => (b.worth ?? 0) - (a.worth ?? 0),
    entropy: (a, b) => a.entropy - b.entropy,
    place: () => 0,
  }[state.sort];
  const thumb = one => {
    const chosen = one.at === state.at && one.n === state.head,
      off = state.off.includes(one.name),
      { layer } = titleOf(one.at);
    const told = `${titleOf(one.at).name}, layer ${layer}, head ${one.n + 1}: entropy ${f(one.entropy, 2)} bits${one.worth === null ? "" : `, worth ${f(one.worth, 2)} nats`}${off ? ", silenced" : ""}`;
    return h(
      "button",
      {
        class: `thumb${off ? " off" : ""}`,
        "data-key": one.name,
        "data-worth": one.worth,
        "data-entropy": one.entropy,
        "aria-pressed": String(chosen),
        "aria-label": told,
        title: told,
        onclick: () => set({ at: one.at, head: one.n }),
      },
      picture(one, pass, size),
      h("span", { class: "w" }, h("i", { style: { width: `${100 * clamp((one.worth ?? 0) / most, 0, 1)}%` } })),
      h("span", { class: "name" }, off ? "silenced" : `L${layer} H${one.n + 1}`),
    );
  };
  const shared =
    model.config.kv_heads && model.config.kv_heads < model.config.heads
      ? model.config.heads / model.config.kv_heads
      : 0;
  return h(
    "div",
    { id: "thumbs", class: "second" },
    h(
      "div",
      { class: "seg", role: "group", "aria-label": "Order of the heads" },
      [
        ["worth", "by worth"],
        ["entropy", "by entropy"],
        ["place", "by place"],
      ].map(([sort, text]) =>
        h(
          "button",
          { "data-key": `sort ${sort}`, "aria-pressed": String(state.sort === sort), onclick: () => set({ sort }) },
          text,
        ),
      ),
    ),
    kinds.map(([kind, some]) =>
      h(
        "div",
        { class: "group" },
        h("p", { class: "label" }, titleOf(some[0].at).name),
        state.sort === "place"
          ? layersOf(some).map(row =>
              h(
                "div",
                { class: "row" },
                shared
                  ? brackets(row, shared).map(group =>
                      h("span", { class: "shared", title: "these heads share keys and values" }, group.map(thumb)),
                    )
                  : row.map(thumb),
              ),
            )
          : h("div", { class: "row" }, [...some].sort(order).map(thumb)),
      ),
    ),
    h(
      "p",
      { class: "small soft note" },
      worth
        ? "The line below a head: what it is worth for this text, the log-probability (in nats) that the answer loses without it."
        : pass.answer.length
          ? [
              h("span", {}, "What each head is worth is not measured yet. "),
              h(
                "button",
                {
                  class: "btn small-btn",
                  id: "measure",
                  "data-key": "measure",
                  onclick: () => {
                    app.measure = pass.id;
                    app.redraw();
                  },
                },
                "Measure it",
              ),
            ]
          : "This model gives no answer, so that no head can be worth anything for it.",
    ),
  );
}

const layersOf = some => [...new Set(some.map(one => one.at))].map(at => some.filter(one => one.at === at));
const brackets = (row, by) => Array.from({ length: row.length / by }, (_, i) => row.slice(i * by, (i + 1) * by));

function picture({ name, picture: head }, pass, size) {
  const key = `${pass.id} ${name} ${size} ${isDark()}`;
  if (!painted.has(key)) {
    if (painted.size > 2000) painted.clear();
    const { canvas, context } = sheet(size, size);
    paint(context, head, 0, 0, size / Math.max(...head.shape));
    painted.set(key, canvas);
  }
  return painted.get(key);
}

/** Every head of a pass, shrunk by maximum. */
function small(work, pass, pool) {
  return work.once(pass, `small ${pool}`, async () => {
    const names = [],
      wanted = [];
    for (const one of pass.attentions) {
      if (pass.tensors.some(({ name }) => name === `${one.path}.mask`)) {
        names.push(null);
        wanted.push({ name: `${one.path}.mask`, pool });
      }
      one.entropy.forEach((_, n) => {
        names.push([one.path, `${one.at}.${n + 1}`]);
        wanted.push({ name: `${one.path}.weights`, index: [0, n], pool });
      });
    }
    const found = [],
      made = new Map();
    for (let from = 0; from < wanted.length; from += 400)
      found.push(...(await work.source.tensors(pass.id, wanted.slice(from, from + 400))));
    let mask = null;
    found.forEach((tensor, i) => {
      if (!names[i]) mask = tensor;
      else made.set(names[i][1], { ...tensor, hidden: hiddenBy(mask?.name === `${names[i][0]}.mask` ? mask : null) });
    });
    return made;
  });
}

// ---- the opened head -----------------------------------------------------------------------------------------------

const bases = new Map();

function opened(app, pass, sides, head, place, full, worth) {
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
    h("div", { class: "stack" }, bases.get(key), over),
    h(
      "div",
      { class: "legend" },
      "0",
      rampBar(),
      "1",
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
    asTable(head, sides),
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
  let spot = null,
    waiting = 0;
  const draw = () => drawOver(canvas, head, sides, place, { silenced: off, spot });
  const cell = event => {
    const box = canvas.getBoundingClientRect(),
      column = Math.floor((event.clientX - box.left - place.x) / place.cell),
      row = Math.floor((event.clientY - box.top - place.y) / place.cell);
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
  canvas.addEventListener("pointermove", event => {
    const here = cell(event);
    canvas.title = here ? words(here.row, here.column) : "";
    follow(here);
  });
  canvas.addEventListener("pointerleave", () => follow(null));
  canvas.addEventListener("pointerup", event => {
    const here = cell(event);
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

/** The head as a table, built when it is opened: of more than 32 tokens, those around the chosen cell. */
function asTable(head, { rows, columns, row, column }) {
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
    { "data-key": "table", ontoggle: event => event.target.open && build() },
    h(
      "summary",
      { class: "small" },
      rows.length > 32 || columns.length > 32 ? "As a table, 32 × 32 around the chosen cell" : "As a table",
    ),
    box,
  );
}
