// View 3, one cell opened: how does this weight come about? From the text to the logits, every number computed on this
// page from the row above it, with as many digits that what is shown gives what is shown. Beside each step stand the
// lines of the installed package that did it.
import { inkOn, ramp, rgb, signed } from "./colour.js";
import { h } from "./dom.js";
import { enough, f, plus, product, rounded, sum } from "./numbers.js";
import { titleOf } from "./work.js";

const FEW = 4; // numbers of a row that are shown; the strip below shows all
const CELLS = 24;

export async function drawCell(app, pass, sides) {
  const { state, work, model } = app,
    { path } = pass.attentions.find(one => one.at === state.at),
    head = await work.head(pass, state.at, state.head);
  const [rows, columns] = head.shape,
    { row, column } = sides,
    here = { app, pass, sides, path, head, rows, columns, ...(await numbers(app, pass, sides, path, head)) };
  const { name, layer } = titleOf(state.at),
    weight = head.hidden(row, column) ? 0 : here.weights[column];
  const looks =
    sides.kind === "encoder"
      ? `“${sides.rows[row].text}” looks at “${sides.columns[column].text}”.`
      : `having read “${sides.read[row].text}”, about to write “${sides.rows[row].text}”, the model looks at “${sides.columns[column].text}”.`;
  const steps = [
    tokens(here),
    embedded(here),
    projected(here),
    multiplied(here),
    divided(here),
    masked(here),
    shares(here),
    mixed(here),
    onTheRoad(here),
    fed(here),
    logits(here),
  ].filter(Boolean);
  return [
    h("h2", {}, `How does ${f(weight, 3)} come about?`),
    h(
      "p",
      { class: "lede" },
      `One cell of ${name.toLowerCase()}, layer ${layer}, head ${state.head + 1}: ${looks} Every number below is computed on this page from the row above it.`,
    ),
    steps.map(({ title, shape, code, body }, i) =>
      h(
        "div",
        { class: "st", "data-step": title },
        h("span", { class: "n" }, String(i + 1)),
        h("div", {}, h("h3", {}, title, h("span", { class: "num" }, shape)), body),
        lines(model, code),
      ),
    ),
  ];
}

/** Everything that is needed of the pass, as rows of numbers; what is not there is null. */
async function numbers({ state, work, model }, pass, { kind, row, column }, path, head) {
  const group = Math.floor(state.head / (model.config.heads / (model.config.kv_heads || model.config.heads))),
    crossing = model.kind === "encoder-decoder";
  const own = kind === "encoder" ? "" : crossing ? "#2" : "",
    other = kind === "self" ? own : "",
    stack = path.split(".")[0];
  const layer = path.split(".").slice(0, 3).join("."),
    columns = head.shape[1];
  const wanted = {
    q: [`${path}.q`, [0, state.head, row]],
    k: [`${path}.k`, [0, group, column]],
    v: [`${path}.v`, [0, group]],
    scores: [`${path}.scores`, [0, state.head, row]],
    context: [`${path}.context`, [0, state.head, row]],
    e1: [`embedding.tokens${own}`, [0, row]],
    p1: [`embedding.positions${own}`, [0, row]],
    x1: [`embedding.embedding${own}`, [0, row]],
    e2: [`embedding.tokens${other}`, [0, column]],
    p2: [`embedding.positions${other}`, [0, column]],
    x2: [`embedding.embedding${other}`, [0, column]],
    normed: [`${path}_residual.norm.norm`, [0, row]],
    output: [`${path}.output`, [0, row]],
    residual: [`${path}_residual.residual`, [0, row]],
    hidden: [`${layer}.feed_forward.hidden`, [0, row]],
    fed: [`${layer}.feed_forward.output`, [0, row]],
    after: [`${layer}.feed_forward_residual.residual`, [0, row]],
    last: [`${stack}.norm.norm`, [0, row]],
    logits: ["output.logits", [0, row]],
  };
  const there = new Set(pass.tensors.map(one => one.name)),
    names = Object.keys(wanted).filter(key => there.has(wanted[key][0]));
  const found = await work.tensors(
      pass,
      names.map(key => ({ name: wanted[key][0], index: wanted[key][1] })),
    ),
    made = Object.fromEntries(Object.keys(wanted).map(key => [key, null]));
  names.forEach((key, i) => {
    made[key] = found[i].data;
  });
  const query = await parameters(work, pass, path, state.head, made, model.config.bias),
    answer = await headRow({ work, pass, token: pass.answer[Math.max(0, state.step)] }, made);
  return { ...made, ...query, ...answer, weights: head.data.subarray(row * columns, (row + 1) * columns) };
}

/** The row of the query's matrix that makes its first number, and its bias; only where it does make it. */
async function parameters(work, pass, path, head, { normed, q }, biased) {
  if (!normed || !q || work.source.alive === false) return { matrix: null };
  const at = head * q.length;
  try {
    const [matrix] = await work.tensors(pass, [{ name: `model:${path}.query.weight`, index: [at] }]),
      [bias] = biased ? await work.tensors(pass, [{ name: `model:${path}.query.bias`, index: [at] }]) : [{ data: [0] }];
    const total = sum(Array.from(matrix.data, (x, i) => x * normed[i])) + bias.data[0];
    return { matrix: Math.abs(total - q[0]) < 1e-3 ? matrix.data : null, bias: bias.data[0] }; // not if q was turned or normed after
  } catch {
    return { matrix: null };
  }
}

/** The row of the embedding that the last state is multiplied with, where head and embedding are tied. */
async function headRow({ work, pass, token }, { last, logits: all }) {
  if (!last || !all || !token || work.source.alive === false) return { scored: null };
  try {
    const [row] = await work.tensors(pass, [{ name: "model:embedding.weight", index: [token.id] }]),
      total = sum(Array.from(row.data, (x, i) => x * last[i]));
    return { scored: Math.abs(total - all[token.id]) < 1e-2 ? row.data : null };
  } catch {
    return { scored: null };
  }
}

// ---- parts ---------------------------------------------------------------------------------------------------------

function lines(model, names) {
  const found = names.map(name => model.code[name]).filter(Boolean);
  return found.length
    ? h(
        "div",
        { class: "code", tabindex: 0, role: "group", "aria-label": "lines of the package" },
        found.map(({ file, line, text }, i) => [i ? "\n" : "", h("span", { class: "at" }, `${file}:${line}\n`), text]),
      )
    : null;
}

/** All numbers of a row as a strip of colours. */
function strip(values, label) {
  const made = h("canvas", {
      class: "strip",
      width: values.length,
      height: 1,
      role: "img",
      "aria-label": `${label}: ${values.length} numbers`,
    }),
    context = made.getContext("2d"),
    most = Math.max(...Array.from(values, Math.abs));
  values.forEach((value, i) => {
    context.fillStyle = rgb(signed(value, most));
    context.fillRect(i, 0, 1, 1);
  });
  return made;
}

/** Rows that add up, column by column, to the last: the addends with as many digits as that takes. */
function adding(rows, total, name, digits = 3) {
  const many = Math.min(FEW, total.length),
    n = enough(digits, 7, n => {
      for (let i = 0; i < many; i++)
        if (f(sum(rows.map(([, values]) => rounded(values[i], n))), digits) !== f(total[i], digits)) return false;
      return true;
    });
  const line = ([text, values], places, className) =>
    h(
      "tr",
      { class: className },
      h("th", { scope: "row" }, text),
      Array.from({ length: many }, (_, i) => h("td", {}, f(values[i], places))),
      h("td", { class: "soft" }, "…"),
    );
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "nums adding" },
      h(
        "tbody",
        {},
        rows.map(one => line(one, n, "")),
        line([name, total], digits, "sum"),
      ),
    ),
  );
}

const eq = (...parts) => h("p", { class: "eq", "data-eq": true }, parts);
const fold = (title, key, ...body) => h("details", { "data-key": key }, h("summary", { class: "small" }, title), body);

/** Two rows, their products and the sum, in a fold, to check by hand. */
function dotted(a, b, names, digits = 3, extra = 0) {
  const { left, other, products, total, digits: n } = product(a, b, digits),
    line = (name, values, places, className = "") =>
      h(
        "tr",
        { class: className },
        h("th", { scope: "row" }, name),
        values.map(value => h("td", {}, f(value, places))),
      );
  const box = fold(
    `All ${a.length}, to check by hand`,
    `all ${names.join(" ")}`,
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "group", "aria-label": "all products" },
      h(
        "table",
        { class: "nums products", "data-of": names.join(" ") },
        h("tbody", {}, line(names[0], left, n + 1), line(names[1], other, n + 1), line("product", products, n, "sum")),
      ),
    ),
  );
  return { box, total, products, n, extra };
}

// ---- the steps -----------------------------------------------------------------------------------------------------

function tokens({ pass, sides: { kind, rows, read, columns, row, column } }) {
  const asks = kind === "encoder" ? rows[row] : read[row],
    key = columns[column],
    lane = (who, token, place, mark) =>
      h(
        "div",
        { class: "lane" },
        h("p", { class: "who" }, who),
        h(
          "p",
          { class: "eq" },
          h("span", { class: `tok ${mark}` }, token.text),
          ` → id ${token.id}, position ${place}`,
        ),
      );
  const ids = kind === "encoder" || kind === "cross" ? pass.source : pass.read;
  let from = 0;
  const word = (pass.pieces ?? []).find(one => {
    const in_ = column >= from && column < from + one.ids.length && ids[column]?.id === one.ids[column - from];
    from += one.ids.length;
    return in_;
  });
  return {
    title: "A token is a number",
    shape: "text → ids",
    code: ["tokens"],
    body: [
      h(
        "div",
        { class: "lanes" },
        lane("the one that looks (query)", asks, row, "chosen"),
        lane("the one looked at (key)", key, column, "key"),
      ),
      word
        ? h(
            "p",
            { class: "small soft" },
            "Byte pairs: ",
            h(
              "span",
              { class: "mono" },
              [word.bytes.join(" "), ...word.merges.map(one => one.pieces.join(" "))].slice(0, 6).join(" → "),
            ),
          )
        : null,
    ],
  };
}

function embedded({ app: { model }, e1, p1, x1, e2, p2, x2 }) {
  if (!e1 || !e2) return null;
  const { config } = model,
    scale = config.embedding.scaled ? Math.sqrt(config.d_model) : 1,
    later = config.embedding.norm || config.embedding.segments;
  const lane = (e, p, x) => {
    const scaled = Array.from(e, value => value * scale),
      total = later ? scaled.map((value, i) => value + (p ? p[i] : 0)) : Array.from(x);
    return h(
      "div",
      { class: "lane" },
      scale !== 1
        ? eq(`${f(e[0], 6)} × ${f(scale, 5)} = `, h("b", {}, f(rounded(e[0], 6) * rounded(scale, 5), 3)))
        : null,
      adding([[scale === 1 ? "E" : "E·√D", scaled], ...(p ? [["+ pos", p]] : [])], total, "= x"),
      strip(Array.from(x), "x"),
    );
  };
  return {
    title: scale === 1 ? "The number picks a row" : "The number picks a row, times √D, plus its position",
    shape: `x (S, D) = (·, ${config.d_model})`,
    code: ["embedding"],
    body: [
      h("div", { class: "lanes" }, lane(e1, p1, x1), lane(e2, p2, x2)),
      later
        ? h("p", { class: "small soft" }, "Then segments and a norm are applied: the strip shows the result.")
        : null,
    ],
  };
}

function projected({ app: { model }, normed, q, k, matrix, bias }) {
  if (!q || !k) return null;
  const { letters } = model,
    made = matrix ? dotted(matrix, normed, ["W", "x"], 4) : null;
  return {
    title: "Through the layers so far, then into a query and a key",
    shape: `q (H, S, d) = (${letters.H}, ·, ${letters.d})`,
    code: ["norm", "projections", "rotation"].filter(
      name => name !== "rotation" || model.config.positions.kind === "rope",
    ),
    body: [
      h(
        "div",
        { class: "lanes" },
        h(
          "div",
          { class: "lane" },
          normed ? [h("p", { class: "small soft" }, "state, normed"), strip(Array.from(normed), "state")] : null,
          h("p", { class: "small soft" }, "its query"),
          strip(Array.from(q), "q"),
        ),
        h("div", { class: "lane" }, h("p", { class: "small soft" }, "the other’s key"), strip(Array.from(k), "k")),
      ),
      made
        ? [
            h(
              "p",
              { class: "small soft" },
              `The first number of q: a row of the query’s matrix times the state, ${matrix.length} products, plus a bias.`,
            ),
            eq(`${f(made.total, 5)} ${plus(bias, 5)} = `, h("b", {}, f(rounded(made.total, 5) + rounded(bias, 5), 3))),
            made.box,
          ]
        : model.config.positions.kind === "rope"
          ? h("p", { class: "small soft" }, "Query and key are then turned by their positions (RoPE).")
          : null,
    ],
  };
}

function multiplied({ app: { model }, q, k }) {
  if (!q || !k) return null;
  const made = dotted(q, k, ["q", "k"], 4),
    { products, n } = made,
    most = Math.max(1e-9, ...products.map(Math.abs)),
    wide = 640 / products.length;
  const bars = h(
    "svg",
    { viewBox: "0 0 640 110", class: "fit", role: "img", "aria-label": `${products.length} products` },
    h("line", { x1: 0, x2: 640, y1: 55, y2: 55, class: "axis" }),
    products.map((value, i) =>
      h(
        "rect",
        {
          x: i * wide + 1,
          width: Math.max(1, wide - 3),
          y: value > 0 ? 55 - (52 * value) / most : 55,
          height: Math.max(1, (52 * Math.abs(value)) / most),
          class: value > 0 ? "posbar" : "negbar",
        },
        h("title", {}, `${f(q[i])} × ${f(k[i])} = ${f(value)}`),
      ),
    ),
  );
  return {
    title: "Multiply them, number by number, and add up",
    shape: `q·k, ${model.letters.d} products → 1`,
    code: ["scores"],
    body: [
      bars,
      h("p", { class: "small soft" }, "Orange: they agree. Blue: they disagree."),
      h(
        "p",
        { class: "eq" },
        `${f(products[0], n)} ${plus(products[1], n)} ${plus(products[2], n)} … = `,
        h("b", { id: "dot" }, f(made.total, 4)),
      ),
      made.box,
    ],
  };
}

function divided({ app: { model, state }, q, k, scores, sides: { column } }) {
  if (!q || !k || !scores) return null;
  const raw = rounded(product(q, k, 4).total, 4),
    { d } = model.letters,
    root = rounded(Math.sqrt(d), 5),
    without = state.sw.includes("scale") && !state.before,
    quotient = without ? raw : raw / root,
    added = scores[column] - quotient;
  const shown = Math.abs(added) > 2e-3;
  return {
    title: "Divide by √d",
    shape: `d = ${d}`,
    code: [],
    body: [
      without
        ? h("p", { class: "eq" }, "The switch is off: not divided.")
        : eq(`${f(raw, 4)} / √${d} = ${f(raw, 4)} / ${f(root, 5)} = `, h("b", { id: "score" }, f(quotient, 3))),
      shown
        ? h(
            "p",
            { class: "eq" },
            `${plus(added, 3)} for the distance (${model.config.positions.kind}) = ${f(scores[column], 3)}`,
          )
        : null,
      h(
        "p",
        { class: "small soft" },
        `A sum of ${d} products is spread √${d} times as wide as one product. Without this the softmax below is pushed to its ends.`,
      ),
    ],
  };
}

/** The columns that are shown of a row: all, or the heaviest and the chosen one. */
function picked({ columns, weights, sides: { column } }) {
  const all = Array.from({ length: columns }, (_, j) => j);
  return columns <= CELLS
    ? all
    : all
        .sort((a, b) => weights[b] - weights[a])
        .slice(0, CELLS - 1)
        .concat(column)
        .filter((j, i, some) => some.indexOf(j) === i)
        .sort((a, b) => a - b);
}

function cells(here, values, digits, shade) {
  const {
      app: { set },
      sides,
      head,
      columns,
    } = here,
    shown = picked(here);
  return [
    h(
      "div",
      { class: "cells" },
      shown.map(j => {
        const no = head.hidden(sides.row, j),
          colour = shade && !no ? ramp(values[j]) : null;
        return h(
          "button",
          {
            class: `cell${j === sides.column ? " on" : ""}${no ? " no" : ""}`,
            "data-key": `${shade ? "w" : "s"}${j}`,
            style: colour ? { background: rgb(colour), color: inkOn(colour) } : {},
            onclick: () => set(sides.pick(sides.row, j)),
          },
          h("small", { style: colour ? { color: "inherit" } : {} }, sides.columns[j].text),
          h("span", {}, no ? (shade ? "0" : "−∞") : f(values[j], digits)),
        );
      }),
    ),
    shown.length < columns
      ? h(
          "p",
          { class: "small soft" },
          `+ ${columns - shown.length} others: ${shade ? f(Math.max(0, sum(Array.from(values)) - sum(shown.map(j => values[j]))), 3) : "smaller weights"}`,
        )
      : null,
  ];
}

function masked(here) {
  const {
    scores,
    sides: { kind, row },
  } = here;
  return (
    scores && {
      title: "What may be seen",
      shape: `scores (S, T), row ${row + 1}`,
      code: ["mask"],
      body: [
        cells(here, scores, 2, false),
        h(
          "p",
          { class: "small soft" },
          kind === "self"
            ? "Hatched: tokens not yet written. e to the power of −∞ is 0, so they take nothing."
            : "Nothing is masked here. Choose a head of the decoder’s self-attention to see the triangle.",
        ),
      ],
    }
  );
}

function shares(here) {
  const {
    scores,
    weights,
    head,
    sides: { row, column },
    columns,
    app: { state },
  } = here;
  if (!scores) return null;
  const late = state.sw.includes("late") && !state.before,
    seenBy = Array.from({ length: columns }, (_, j) => j).filter(j => late || !head.hidden(row, j)),
    top = Math.max(...seenBy.map(j => scores[j])),
    total = sum(seenBy.map(j => Math.exp(scores[j] - top)));
  const n = enough(
      4,
      7,
      n => f(Math.exp(rounded(scores[column], n) - rounded(top, n)) / rounded(total, n), 3) === f(weights[column], 3),
    ),
    power = Math.exp(rounded(scores[column], n) - rounded(top, n));
  const whole = Math.abs(power / total - weights[column]) < 1e-3;
  return {
    title: "Softmax: shares that add up to one",
    shape: `weights (S, T), row ${row + 1}`,
    code: ["softmax", "weights"],
    body: [
      cells(here, weights, 3, true),
      head.hidden(row, column)
        ? h("p", { class: "eq" }, "e^(−∞) = 0")
        : whole
          ? eq(
              `e^(${f(scores[column], n)} − ${f(top, n).replace(/^−(.*)$/, "(−$1)")}) / ${f(total, n)} = ${f(power, n)} / ${f(total, n)} = `,
              h("b", { id: "share" }, f(weights[column], 3)),
            )
          : h("p", { class: "small soft" }, "An edit changed these shares after the softmax."),
    ],
  };
}

function mixed({ weights, v, context, columns, sides, app: { model, state } }) {
  if (!v || !context) return null;
  const { d } = model.letters,
    order = Array.from({ length: columns }, (_, j) => j).sort((a, b) => weights[b] - weights[a]),
    first = order.slice(0, 2),
    part = j => Array.from(v.subarray(j * d, (j + 1) * d), value => value * weights[j]);
  const rows = first.map(j => [`${f(weights[j], 2)} × v(${sides.columns[j].text})`, part(j)]),
    others = new Float64Array(d);
  for (const j of order.slice(2))
    part(j).forEach((value, i) => {
      others[i] += value;
    });
  const silent = state.off.includes(`${state.at}.${state.head + 1}`) && !state.before,
    total = Array.from(context);
  return {
    title: "Mix the values by these shares",
    shape: `context (H, S, d), head ${state.head + 1}`,
    code: ["mix"],
    body: silent
      ? h("p", { class: "eq" }, "This head is silenced: its context is zero.")
      : [adding([...rows, ["+ all others", others]], total, "= context"), strip(total, "context")],
  };
}

function onTheRoad({ output, residual, app: { model } }) {
  if (!output || !residual) return null;
  const before = Array.from(residual, (value, i) => value - output[i]);
  return {
    title: "All heads side by side, one matrix, and back onto the road",
    shape: `output, residual (S, D) = (·, ${model.letters.D})`,
    code: ["out", "residual"],
    body: [
      adding(
        [
          ["the road", before],
          ["+ output", output],
        ],
        Array.from(residual),
        "= the road",
      ),
      strip(Array.from(residual), "the road"),
    ],
  };
}

function fed({ hidden, fed: output, after, app: { model } }) {
  if (!hidden || !output || !after) return null;
  const active = Array.from(hidden).filter(value => value > 0).length,
    before = Array.from(after, (value, i) => value - output[i]);
  return {
    title: "Norm, feed-forward, and onto the road again",
    shape: `hidden (S, F) = (·, ${hidden.length})`,
    code: ["feed_forward", "feed_forward_out"],
    body: [
      h(
        "p",
        { class: "small soft" },
        `${active} of ${hidden.length} numbers in between are above zero (${model.config.activation}).`,
      ),
      strip(Array.from(hidden), "hidden"),
      adding(
        [
          ["the road", before],
          ["+ output", output],
        ],
        Array.from(after),
        "= the road",
      ),
    ],
  };
}

function logits({ logits: all, last, scored, sides: { kind }, app: { work, state } }) {
  const pass = work.shown(state),
    token = pass.answer[Math.max(0, state.step)];
  if (!all || !token || (kind === "encoder" && pass.kind !== "encoder")) return null;
  const values = Array.from(all),
    top = Math.max(...values),
    total = top + Math.log(sum(values.map(value => Math.exp(value - top)))),
    value = values[token.id],
    made = scored ? dotted(scored, last, ["E", "state"], 3) : null;
  const n = enough(3, 7, n => f(Math.exp(rounded(value, n) - rounded(total, n)), 3) === f(Math.exp(value - total), 3));
  return {
    title: "After all layers: a number for each token",
    shape: `logits (S, V) = (·, ${values.length})`,
    code: ["logits"],
    body: [
      made
        ? [
            h(
              "p",
              { class: "small soft" },
              `The last state times the row of “${token.text}” in the embedding, ${last.length} products, is its logit: `,
              h("b", { class: "mono", id: "logit" }, f(made.total, 3)),
            ),
            made.box,
          ]
        : null,
      h(
        "p",
        { class: "small soft" },
        "Softmax once more, over the whole vocabulary; the second number is the logarithm of the sum of all e^logit.",
      ),
      eq(
        `e^(${f(value, n)} − ${f(total, n).replace(/^−(.*)$/, "(−$1)")}) = `,
        h("b", { id: "chance" }, f(Math.exp(value - total), 3)),
      ),
    ],
  };
}
