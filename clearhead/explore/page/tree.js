// Beam search as a tree: what was kept is solid, what was looked at and pruned is dashed, the best way is purple.
import { h, short } from "./dom.js";
import { f } from "./numbers.js";

const WIDE = 78,
  BOX = 60,
  HIGH = 34;

export function drawTree({ columns, hypotheses }, go) {
  const best = bestPath(columns, hypotheses[0]?.ids ?? []),
    rows = Math.max(...columns.map(column => column.length));
  const made = h("svg", {
    width: columns.length * WIDE,
    height: rows * HIGH + 8,
    role: "img",
    "aria-label": `beam search as a tree; best: ${hypotheses[0]?.text ?? ""}`,
  });
  columns.forEach(
    (column, i) =>
      i &&
      column.forEach(({ parent, kept }, j) => {
        const x = i * WIDE + 4,
          from = parent * HIGH + 17,
          to = j * HIGH + 17,
          on = best[i] === j;
        made.append(
          h("path", {
            d: `M${x - WIDE + BOX},${from} C${x - 6},${from} ${x - WIDE + BOX + 6},${to} ${x},${to}`,
            class: on ? "branch on" : kept ? "branch" : "branch pruned",
          }),
        );
      }),
  );
  columns.forEach((column, i) =>
    column.forEach((node, j) => {
      const x = i * WIDE + 4,
        y = j * HIGH + 4,
        on = best[i] === j;
      made.append(
        h(
          "g",
          { class: `press node${on ? " on" : node.kept ? "" : " pruned"}`, onclick: () => go(i) },
          h("rect", { x, y, width: BOX, height: 26, rx: 4 }),
          h("text", { x: x + 5, y: y + 18, "font-size": 14, class: "mono" }, short(node.text).slice(0, 3)),
          h(
            "text",
            { x: x + BOX - 4, y: y + 17, "font-size": 11, "text-anchor": "end", class: "mono f" },
            f(node.finished ? node.score : node.total, 1),
          ),
          h(
            "title",
            {},
            `${node.text}: log-p ${f(node.log_prob, 3)}, sum ${f(node.total, 3)}${node.finished ? `, ended with score ${f(node.score, 3)}` : ""}${node.kept ? "" : ", pruned"}`,
          ),
        ),
      );
    }),
  );
  return made;
}

/** The place of each token of the best hypothesis in its column. */
function bestPath(columns, ids) {
  if (!ids.length) return [];
  const last = columns[ids.length - 1] ?? [];
  for (let start = 0; start < last.length; start++) {
    const path = [start];
    let place = start,
      right = last[start].id === ids.at(-1);
    for (let i = ids.length - 1; i > 0 && right; i--) {
      place = columns[i][place].parent;
      path.unshift(place);
      right = columns[i - 1][place]?.id === ids[i - 1];
    }
    if (right) return path;
  }
  return [];
}
