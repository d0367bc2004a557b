// The tensor behind what is chosen: name, shape in letters and numbers, kind, statistics, values, and how to get it in
// Python. Any other tensor of the pass can be chosen in its place.
import { h, short } from "./dom.js";
import { clamp, f, sum } from "./numbers.js";

const VALUES = 24;
const TOLD = {
  weights: ["Attention weights", "Each row is a query and adds up to one."],
  logits: ["Logits", "One number for each token of the vocabulary, at each step."],
  q: ["Queries", "What each token asks."],
  k: ["Keys", "What each token answers to."],
  v: ["Values", "What each token hands over."],
  scores: ["Scores", "q·k / √d, what is masked −∞."],
  mask: ["Mask", "1: may look."],
  context: ["Context", "The values of each head, mixed by its weights."],
  output: ["Output", "What the sub-layer adds to the road."],
  residual: ["Residual stream", "The road that every sub-layer adds to."],
  norm: ["Normed", "Each row brought to one size."],
  hidden: ["Hidden", "Between the two matrices of the feed-forward."],
  tokens: ["Token rows", "The rows that the ids pick."],
  positions: ["Positions", "Added, so that order can be seen."],
  embedding: ["Embedding", "What goes into the first layer."],
};

export async function inspector({ state, work, set }, pass, sides) {
  const usual = usualName(state, pass),
    row =
      pass.tensors.find(one => one.name === state.ten) ??
      pass.tensors.find(one => one.name === usual) ??
      pass.tensors.at(-1);
  if (!row) return [];
  const [title, told] = TOLD[row.name.split(".").at(-1).replace(/#\d+$/, "")] ?? ["Tensor", ""];
  const facts = [
    ["shape", `(${row.letters.split(" ").join(", ")})`],
    ["", `(${row.shape.join(", ")})`],
    ["dtype", row.dtype],
    ["min", f(row.min)],
    ["mean", f(row.mean)],
    ["max", f(row.max)],
  ];
  const index = indexOf(row, state, pass, sides),
    values = await work.tensors(pass, [{ name: row.name, index }]);
  return [
    h("p", { class: "label" }, "Inspector"),
    h("h3", {}, title),
    h("p", { class: "path" }, row.name),
    h("p", { class: "small soft" }, told),
    h(
      "dl",
      { class: "facts" },
      facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    ),
    valuesOf(row, index, values[0], state, pass, sides),
    h(
      "label",
      { class: "small soft" },
      "Another tensor of this pass ",
      h(
        "select",
        {
          "data-key": "ten",
          id: "ten",
          onchange: event => set({ ten: event.target.value === usual ? "" : event.target.value }),
        },
        pass.tensors.map(one => h("option", { value: one.name, selected: one === row }, one.name)),
      ),
    ),
    h("p", { class: "small soft" }, "In Python"),
    h("div", { class: "code wrap" }, `t["${row.name}"][${index.join(", ")}]`),
  ];
}

/** The tensor that the view is about. */
function usualName(state, pass) {
  const attention = pass.attentions.find(one => one.at === state.at);
  if (["look", "cell"].includes(state.view) && attention) return `${attention.path}.weights`;
  if (state.view !== "layers") return "output.logits";
  return pass.tensors.filter(one => /residual\.(residual|norm\.norm)$/.test(one.name)).at(-1)?.name;
}

/** Where in a tensor the chosen row stands: [0], the head, and the row of the token. */
function indexOf({ name, letters, shape }, state, pass, sides) {
  const first = pass.kind === "decoder" ? pass.prompt - 1 : 0,
    reads = name.startsWith("encoder") || (name.startsWith("embedding") && !name.endsWith("#2") && pass.source.length);
  const step = reads ? state.src : pass.kind === "encoder" ? state.src : state.step + first;
  const at = {
    B: 0,
    H: state.head,
    G: 0,
    S: step,
    T: name.includes("cross") || name.startsWith("encoder") ? state.src : (sides?.column ?? 0),
  };
  const index = letters
    .split(" ")
    .slice(0, -1)
    .map((letter, i) => clamp(at[letter] ?? 0, 0, shape[i] - 1));
  return index;
}

function valuesOf(row, index, { data }, state, pass, sides) {
  const values = Array.from(data),
    chosen =
      row.name.endsWith(".weights") &&
      row.name.startsWith(pass.attentions.find(one => one.at === state.at)?.path ?? "-")
        ? sides.column
        : -1;
  const cells = some =>
    h(
      "div",
      { class: "vals" },
      some.map(([i, value]) => h("span", { class: i === chosen ? "on" : "" }, f(value, 3))),
    );
  if (row.name === "output.logits") {
    const top = Math.max(...values),
      total = top + Math.log(sum(values.map(value => Math.exp(value - top)))),
      best = values
        .map((value, i) => [i, value - total])
        .sort((a, b) => b[1] - a[1])
        .slice(0, 4);
    return [h("p", { class: "label" }, `row ${index.at(-1) + 1}: four highest, as log-probabilities`), cells(best)];
  }
  const from = clamp(chosen - VALUES / 2, 0, Math.max(0, values.length - VALUES)),
    shown = values.slice(from, from + VALUES).map((value, i) => [from + i, value]);
  const which = `[${index.join(", ")}]${values.length > VALUES ? `, numbers ${from + 1} to ${from + shown.length} of ${values.length}` : ""}`;
  const named =
    chosen >= 0
      ? `head ${state.head + 1}, row ${sides.row + 1} “${short(sides.rows[sides.row].text)}”${values.length > VALUES ? `, columns ${from + 1} to ${from + shown.length}` : ""}`
      : which;
  return [
    h("p", { class: "label" }, named),
    cells(shown),
    row.name.endsWith(".weights") && h("p", { class: "small soft" }, `sum ${f(sum(values), 3)}`),
  ];
}
