// View 3, one cell opened: how does this weight come about? From the text to the logits, every number computed on this
// page from the row above it, with as many digits that what is shown gives what is shown. Beside each step stand the
// lines of the installed package that did it.
import { fed, logits, onTheRoad } from "./cell_after.js";
import { embedded, normed, projected, tokens } from "./cell_before.js";
import { rowsOf } from "./cell_data.js";
import { lines } from "./cell_parts.js";
import { divided, masked, mixed, multiplied, shares } from "./cell_weight.js";
import { h } from "./dom.js";
import { f } from "./numbers.js";
import { titleOf } from "./work.js";

const STEPS = [tokens, embedded, normed, projected, multiplied, divided, masked, shares, mixed, onTheRoad, fed, logits];

export async function drawCell(app, pass, sides) {
  const { state, work, model } = app,
    { path } = pass.attentions.find(one => one.at === state.at),
    { row, column } = sides;
  const head = await work.head(pass, state.at, state.head),
    columns = head.shape[1],
    weights = head.data.subarray(row * columns, (row + 1) * columns);
  const here = { app, pass, sides, path, head, columns, weights, ...(await rowsOf(app, pass, sides, path)) };
  const { name, layer } = titleOf(state.at),
    weight = head.hidden(row, column) ? 0 : weights[column];
  const looks =
    sides.kind === "encoder"
      ? `“${sides.rows[row].text}” looks at “${sides.columns[column].text}”.`
      : `having read “${sides.read[row].text}”, about to write “${sides.rows[row].text}”, the model looks at “${sides.columns[column].text}”.`;
  const steps = STEPS.map(make => make(here)).filter(Boolean);
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
