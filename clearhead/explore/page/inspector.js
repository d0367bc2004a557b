// The tensor behind what is chosen: name, shape in letters and numbers, kind, statistics, values, and how to get it in Python.
import { h } from "./dom.js";
import { f, sum } from "./numbers.js";

export async function inspector({ state, work }, pass, sides) {
  const { path } = pass.attentions.find(one => one.at === state.at) ?? {},
    cell = ["look", "cell"].includes(state.view) && path;
  const row =
    pass.tensors.find(one => one.name === (cell ? `${path}.weights` : "output.logits")) ?? pass.tensors.at(-1);
  if (!row) return [];
  const found = [
    h("p", { class: "label" }, "Inspector"),
    h("h3", {}, cell ? "Attention weights" : row.name === "output.logits" ? "Logits" : "Tensor"),
    h("p", { class: "path" }, row.name),
    h(
      "p",
      { class: "small soft" },
      cell ? "Each row is a query and adds up to one." : "One number for each token of the vocabulary, at each step.",
    ),
    h(
      "dl",
      { class: "facts" },
      [
        ["shape", `(${row.letters.split(" ").join(", ")})`],
        ["", `(${row.shape.join(", ")})`],
        ["dtype", row.dtype],
        ["min", f(row.min)],
        ["mean", f(row.mean)],
        ["max", f(row.max)],
      ].map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    ),
  ];
  let index = "";
  if (cell) {
    const head = await work.head(pass, state.at, state.head),
      columns = head.shape[1],
      values = Array.from(head.data.subarray(sides.row * columns, (sides.row + 1) * columns));
    const from = Math.max(0, Math.min(sides.column - 12, columns - 24));
    index = `[0, ${state.head}, ${sides.row}]`;
    found.push(
      h(
        "p",
        { class: "label" },
        `head ${state.head + 1}, row ${sides.row + 1} “${sides.rows[sides.row].text}”${columns > 24 ? `, columns ${from + 1} to ${from + 24}` : ""}`,
      ),
      h(
        "div",
        { class: "vals" },
        values
          .slice(from, from + 24)
          .map((value, i) =>
            h(
              "span",
              { class: from + i === sides.column ? "on" : "" },
              head.hidden(sides.row, from + i) ? "–" : f(value, 3),
            ),
          ),
      ),
      h("p", { class: "small soft" }, `sum ${f(sum(values), 3)}`),
      h(
        "details",
        { "data-key": "made" },
        h("summary", { class: "small" }, "Tensors made here"),
        h(
          "dl",
          { class: "facts" },
          pass.tensors
            .filter(one => one.name.startsWith(`${path}.`))
            .map(one => [
              h("dt", { class: "mono small" }, one.name.slice(path.length + 1)),
              h("dd", {}, one.shape.join(" · ")),
            ]),
        ),
      ),
    );
  }
  found.push(
    h("p", { class: "small soft" }, "In Python"),
    h("div", { class: "code wrap" }, `t["${row.name}"]${index}`),
  );
  return found;
}
