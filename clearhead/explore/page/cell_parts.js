// Pieces of view 3: rows that add up, products to check by hand, a norm worked out, a strip of colours. Each shows as
// many digits as it takes for what is shown to give what is shown.
import { rgb, signed } from "./colour.js";
import { h } from "./dom.js";
import { enough, f, plus, product, rounded, sum } from "./numbers.js";

const FEW = 4; // numbers of a row that are shown; the strip below shows all

export const eq = (...parts) => h("p", { class: "eq", "data-eq": true }, parts);
export const note = (...parts) => h("p", { class: "small soft" }, parts);
export const fold = (title, key, ...body) =>
  h("details", { "data-key": key }, h("summary", { class: "small" }, title), body);
const scroll = (label, ...body) => h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": label }, body);
/** A number that something is subtracted from stands in brackets if it is negative. */
export const inBrackets = text => text.replace(/^−(.*)$/, "(−$1)");

/** The lines of the installed package that do a step. */
export function lines(model, names) {
  const found = names.map(name => model.code[name]).filter(Boolean);
  if (!found.length) return null;
  return h(
    "div",
    { class: "code", tabindex: 0, role: "group", "aria-label": "lines of the package" },
    found.map(({ file, line, text }, i) => [i ? "\n" : "", h("span", { class: "at" }, `${file}:${line}\n`), text]),
  );
}

/** All numbers of a row as a strip of colours. */
export function strip(values, label) {
  const made = h("canvas", {
    class: "strip",
    width: values.length,
    height: 1,
    role: "img",
    "aria-label": `${label}: ${values.length} numbers`,
  });
  const context = made.getContext("2d"),
    most = Math.max(...Array.from(values, Math.abs));
  values.forEach((value, i) => {
    context.fillStyle = rgb(signed(value, most));
    context.fillRect(i, 0, 1, 1);
  });
  return made;
}

/** Rows that add up, column by column, to the last: [name, values] each. */
export function adding(rows, total, name, digits = 3) {
  const many = Math.min(FEW, total.length),
    at = Array.from({ length: many }, (_, i) => i);
  const n = enough(digits, 7, n =>
    at.every(i => f(sum(rows.map(([, values]) => rounded(values[i], n))), digits) === f(total[i], digits)),
  );
  const line = ([text, values], places, className) =>
    h(
      "tr",
      { class: className },
      h("th", { scope: "row" }, text),
      at.map(i => h("td", {}, f(values[i], places))),
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

/** Two rows, their products and the sum: { box (a fold with all of them), total, products, n (digits of a product) }. */
export function dotted(a, b, names, digits = 3) {
  const { left, other, products, total, digits: n } = product(a, b, digits);
  const line = (name, values, places, className = "") =>
    h(
      "tr",
      { class: className },
      h("th", { scope: "row" }, name),
      values.map(value => h("td", {}, f(value, places))),
    );
  const table = h(
    "table",
    { class: "nums products", "data-of": names.join(" ") },
    h("tbody", {}, line(names[0], left, n + 1), line(names[1], other, n + 1), line("product", products, n, "sum")),
  );
  return {
    box: fold(`All ${a.length}, to check by hand`, `all ${names.join(" ")}`, scroll("all products", table)),
    total,
    products,
    n,
  };
}

/** One number of a matrix times a row, plus its bias; the products in a fold. */
export function linear({ row, input, bias }, names, id = null) {
  const { box, total } = dotted(row, input, names, 4),
    sum5 = rounded(total, 5),
    bias5 = rounded(bias, 5);
  return [
    bias === 0
      ? h("p", { class: "eq" }, `${input.length} products add up to `, h("b", { id }, f(total, 3)))
      : eq(`${f(total, 5)} ${plus(bias, 5)} = `, h("b", { id }, f(sum5 + bias5, 3))),
    box,
  ];
}

/** The first number of a row through a norm. `x`: the row; `y`: what the norm made of it. */
export function normOf(x, y, { weight, bias }, { kind, epsilon }, key) {
  const values = Array.from(x),
    many = values.length,
    mean = kind === "rms" ? 0 : sum(values) / many;
  const spread = Math.sqrt(sum(values.map(value => (value - mean) ** 2)) / many + epsilon);
  const made = n =>
    ((rounded(values[0], n) - rounded(mean, n)) / rounded(spread, n)) * rounded(weight, n) +
    (bias === null ? 0 : rounded(bias, n));
  if (Math.abs(made(9) - y[0]) > 1e-3) return null; // an edit came between
  const n = enough(4, 8, n => f(made(n), 3) === f(y[0], 3));
  const top = kind === "rms" ? f(values[0], n) : `(${f(values[0], n)} − ${inBrackets(f(mean, n))})`;
  const all = h(
    "table",
    { class: "nums" },
    h(
      "tbody",
      {},
      h(
        "tr",
        { class: "all" },
        h("th", { scope: "row" }, "x"),
        values.map(value => h("td", {}, f(value, 5))),
      ),
    ),
  );
  return [
    note(
      kind === "rms"
        ? `The root of the mean square of all ${many} numbers (plus ε = ${epsilon}) is `
        : `Of all ${many} numbers the mean is ${f(mean, n)}, the root of the variance (plus ε = ${epsilon}) `,
      h("span", { class: "mono", "data-spread": key }, f(spread, n)),
      ". The first one:",
    ),
    eq(
      `${top} / ${f(spread, n)} × ${inBrackets(f(weight, n))}${bias === null ? "" : ` ${plus(bias, n)}`} = `,
      h("b", {}, f(made(n), 3)),
    ),
    fold(`All ${many}`, `norm ${key}`, scroll("all numbers before the norm", all)),
  ];
}
