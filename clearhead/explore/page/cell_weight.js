// View 3, the weight itself: products, the division, the mask, the softmax, and the values mixed by it.
import { inkOn, ramp, rgb } from "./colour.js";
import { h } from "./dom.js";
import { adding, dotted, eq, inBrackets, note, strip } from "./cell_parts.js";
import { enough, f, plus, product, rounded, sum } from "./numbers.js";

const CELLS = 24; // of a row that are shown; of more, the heaviest
const HIGH = 96; // pixels of the bars

export function multiplied({ app: { model }, q, k }) {
  if (!q || !k) return null;
  const { box, products, n, total } = dotted(q, k, ["q", "k"], 4),
    largest = products.reduce((best, value, i) => (Math.abs(value) > Math.abs(products[best]) ? i : best), 0);
  return {
    title: "Multiply them, number by number, and add up",
    shape: `q·k, ${model.letters.d} products → 1`,
    code: ["scores"],
    body: [
      bars(products, i => `${f(q[i])} × ${f(k[i])} = ${f(products[i])}`),
      h(
        "p",
        { class: "legend" },
        h("span", { class: "swatch pos" }),
        "agree",
        h("span", { class: "swatch neg" }),
        "disagree",
        h("span", { class: "num" }, `largest: number ${largest + 1} of ${products.length}, ${f(products[largest], 3)}`),
      ),
      h(
        "p",
        { class: "eq" },
        `${f(products[0], n)} ${plus(products[1], n)} ${plus(products[2], n)} … = `,
        h("b", { id: "dot" }, f(total, 4)),
      ),
      box,
    ],
  };
}

function bars(values, told) {
  const high = Math.max(0, ...values),
    low = Math.min(0, ...values),
    y = value => (HIGH * (high - value)) / (high - low || 1),
    wide = 640 / values.length;
  return h(
    "svg",
    { viewBox: `0 0 640 ${HIGH}`, class: "fit", role: "img", "aria-label": `${values.length} products` },
    h("line", { x1: 0, x2: 640, y1: y(0), y2: y(0), class: "axis" }),
    values.map((value, i) =>
      h(
        "rect",
        {
          x: i * wide + 1,
          width: Math.max(1, wide - 3),
          y: Math.min(y(0), y(value)),
          height: Math.max(1, Math.abs(y(value) - y(0))),
          class: value > 0 ? "posbar" : "negbar",
        },
        h("title", {}, told(i)),
      ),
    ),
  );
}

export function divided({ app: { model, state }, q, k, scores, sides: { column } }) {
  if (!q || !k || !scores) return null;
  const raw = rounded(product(q, k, 4).total, 4),
    { d } = model.letters,
    root = rounded(Math.sqrt(d), 5),
    without = state.sw.includes("scale") && !state.before;
  const quotient = without ? raw : raw / root,
    added = scores[column] - quotient;
  return {
    title: "Divide by √d",
    shape: `d = ${d}`,
    code: [],
    body: [
      without
        ? h("p", { class: "eq" }, "The switch is off: not divided.")
        : eq(`${f(raw, 4)} / √${d} = ${f(raw, 4)} / ${f(root, 5)} = `, h("b", { id: "score" }, f(quotient, 3))),
      Math.abs(added) > 2e-3 &&
        Number.isFinite(added) &&
        eq(`${f(quotient, 4)} ${plus(added, 4)} = `, h("b", {}, f(rounded(quotient, 4) + rounded(added, 4), 3))),
      Math.abs(added) > 2e-3 &&
        Number.isFinite(added) &&
        note(`What is added stands for the distance (${model.config.positions.kind}).`),
      note(
        `A sum of ${d} products is spread √${d} times as wide as one product. Without this the softmax below is pushed to its ends.`,
      ),
    ],
  };
}

/** The columns that are shown of a row: all, or the heaviest and the chosen one. */
function picked({ columns, weights, sides: { column } }) {
  const all = Array.from({ length: columns }, (_, j) => j);
  if (columns <= CELLS) return all;
  const heaviest = all.sort((a, b) => weights[b] - weights[a]).slice(0, CELLS - 1);
  return [...new Set([...heaviest, column])].sort((a, b) => a - b);
}

function cells(here, values, digits, shade) {
  const {
      app: { set },
      sides,
      head,
      columns,
    } = here,
    shown = picked(here);
  const cell = j => {
    const no = head.hidden(sides.row, j),
      colour = shade && !no ? ramp(values[j]) : null;
    return h(
      "button",
      {
        class: `cell${j === sides.column ? " on" : ""}${no ? " no" : ""}`,
        "data-key": `${shade ? "w" : "s"}${j}`,
        "aria-pressed": String(j === sides.column),
        style: colour ? { background: rgb(colour), color: inkOn(colour) } : {},
        onclick: () => set(sides.pick(sides.row, j)),
      },
      h("small", { style: colour ? { color: "inherit" } : {} }, sides.columns[j].text),
      h("span", {}, no ? (shade ? "0" : "−∞") : f(values[j], digits)),
    );
  };
  const rest = Math.max(0, sum(Array.from(values)) - sum(shown.map(j => values[j])));
  return [
    h("div", { class: "cells" }, shown.map(cell)),
    shown.length < columns
      ? note(`+ ${columns - shown.length} others: ${shade ? f(rest, 3) : "smaller weights"}`)
      : null,
  ];
}

export function masked(here) {
  const {
    scores,
    sides: { kind, row },
  } = here;
  if (!scores) return null;
  const told =
    kind === "self"
      ? "Hatched: tokens not yet written. e to the power of −∞ is 0, so they take nothing."
      : "Nothing is masked here: the whole text may be seen. A head of the decoder’s self-attention has the triangle.";
  return {
    title: "What may be seen",
    shape: `scores (S, T), row ${row + 1}`,
    code: ["mask"],
    body: [cells(here, scores, 2, false), note(told)],
  };
}

export function shares(here) {
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
    seen = Array.from({ length: columns }, (_, j) => j).filter(j => late || !head.hidden(row, j));
  const top = Math.max(...seen.map(j => scores[j])),
    total = sum(seen.map(j => Math.exp(scores[j] - top)));
  const power = n => Math.exp(rounded(scores[column], n) - rounded(top, n));
  const n = enough(
    4,
    7,
    n =>
      f(power(n) / rounded(total, n), 3) === f(weights[column], 3) &&
      f(rounded(power(n), n) / rounded(total, n), 3) === f(weights[column], 3),
  );
  const whole = Math.abs(power(n) / total - weights[column]) < 1e-3;
  let told = note("An edit changed these shares after the softmax.");
  if (head.hidden(row, column)) told = h("p", { class: "eq" }, "e^(−∞) = 0");
  else if (whole)
    told = [
      note(
        `The largest score, ${f(top, n)}, is taken from all: that changes no share and keeps e^… small. They add up to ${f(total, n)}.`,
      ),
      eq(
        `e^(${f(scores[column], n)} − ${inBrackets(f(top, n))}) / ${f(total, n)} = ${f(power(n), n)} / ${f(total, n)} = `,
        h("b", { id: "share" }, f(weights[column], 3)),
      ),
    ];
  return {
    title: "Softmax: shares that add up to one",
    shape: `weights (S, T), row ${row + 1}`,
    code: ["softmax", "weights"],
    body: [cells(here, weights, 3, true), told],
  };
}

export function mixed({ weights, v, context, columns, sides, app: { model, state } }) {
  if (!v || !context) return null;
  const { d } = model.letters,
    order = Array.from({ length: columns }, (_, j) => j).sort((a, b) => weights[b] - weights[a]);
  const part = j => Array.from(v.subarray(j * d, (j + 1) * d), value => value * weights[j]),
    others = new Float64Array(d);
  for (const j of order.slice(2))
    part(j).forEach((value, i) => {
      others[i] += value;
    });
  const rows = [
    ...order.slice(0, 2).map(j => [`${f(weights[j], 2)} × v(${sides.columns[j].text})`, part(j)]),
    ["+ all others", others],
  ];
  const total = Array.from(context),
    silent = state.off.includes(`${state.at}.${state.head + 1}`) && !state.before;
  return {
    title: "Mix the values by these shares",
    shape: `context (H, S, d), head ${state.head + 1}`,
    code: ["mix"],
    body: silent
      ? h("p", { class: "eq" }, "This head is silenced: its context is zero.")
      : [adding(rows, total, "= context"), strip(total, "context")],
  };
}
