// Arcs between words: the weights of the chosen token alone. Of more than 32 tokens the twelve heaviest are drawn, and
// the rest is one number.
import { h, narrow } from "./dom.js";
import { cut } from "./matrix.js";
import { f, sum } from "./numbers.js";

const HIGH = 172,
  TOP = 36,
  HEAVIEST = 12;

/** `weights`: one row; `go(change)` chooses. */
export function drawArcs(weights, sides, hidden, room, set) {
  const most = Math.max(sides.rows.length, sides.columns.length),
    long = most > 32;
  let shown = sides.columns.map((_, j) => j);
  if (long)
    shown = shown
      .sort((a, b) => weights[b] - weights[a])
      .slice(0, HEAVIEST)
      .concat(sides.column)
      .filter((j, at, all) => all.indexOf(j) === at && sides.columns[j])
      .sort((a, b) => a - b);
  const below = long ? [sides.row] : sides.rows.map((_, i) => i),
    count = Math.max(shown.length, below.length);
  const width = Math.max(narrow() ? 27 : 30, Math.min(54, Math.floor(room / count))),
    half = Math.min(long ? 28 : 20, width / 2 - 1.5);
  const x = at => at * width + width / 2,
    under = i => (long ? (count * width) / 2 : x(i)),
    bottom = HIGH - 14;
  const drawing = h("svg", {
    width: count * width,
    height: HIGH,
    role: "img",
    "aria-label": `${sides.rows[sides.row]?.text ?? ""} looks at ${weights.length} tokens, most at ${heaviest(weights, sides)}`,
  });
  shown.forEach((j, at) => {
    if (weights[j] < 0.005 || hidden(sides.row, j)) return;
    const from = under(sides.row),
      to = x(at),
      on = j === sides.column;
    drawing.append(
      h(
        "path",
        {
          d: `M${from},${bottom - 22} C${from},${HIGH / 2 - 6} ${to},${HIGH / 2 + 6} ${to},${TOP + 12}`,
          class: on ? "arc on" : "arc",
          "stroke-width": 1 + 13 * weights[j],
          opacity: on ? 0.95 : 0.35 + 0.5 * weights[j],
        },
        h("title", {}, `${sides.rows[sides.row].text} looks at ${sides.columns[j].text}: ${f(weights[j])}`),
      ),
    );
  });
  shown.forEach((j, at) =>
    drawing.append(
      word(
        sides.columns[j].text,
        x(at),
        TOP,
        half,
        {
          class: `press word${hidden(sides.row, j) ? " no" : ""}${j === sides.column ? " key" : ""}`,
          onclick: () => set(sides.pick(sides.row, j)),
        },
        weights[j] >= 0.05 &&
          h(
            "text",
            { x: x(at), y: TOP - 25, "text-anchor": "middle", "font-size": 12, class: "mono f halo" },
            width < 36 ? f(weights[j], 2).replace(/^0/, "") : f(weights[j], 2),
          ),
      ),
    ),
  );
  below.forEach(i =>
    drawing.append(
      word(sides.rows[i].text, under(i), bottom, half, {
        class: `press word${i === sides.row ? " on" : ""}`,
        onclick: () => set(sides.pick(i, sides.column)),
      }),
    ),
  );
  const rest = long ? sum(Array.from(weights)) - sum(shown.map(j => weights[j])) : 0;
  return [
    h(
      "div",
      { class: "scroll", id: "arcs", tabindex: 0, role: "group", "aria-label": "Arcs, scroll sideways" },
      drawing,
    ),
    long &&
      h(
        "p",
        { class: "num soft", id: "others" },
        `+ ${weights.length - shown.length} others: ${f(Math.max(0, rest), 2)}`,
      ),
  ];
}

function word(text, x, y, half, props, ...more) {
  const shown = cut(text, Math.max(1, Math.floor(half / 4)));
  return h(
    "g",
    props,
    h("rect", { x: x - half, y: y - 20, width: 2 * half, height: 28, rx: 5 }),
    h("text", { x, y, "text-anchor": "middle", "font-size": [...shown].length > 2 ? 12 : 16, class: "mono" }, shown),
    h("title", {}, text),
    more,
  );
}

const heaviest = (weights, sides) => {
  const at = weights.indexOf(Math.max(...weights));
  return `${sides.columns[at]?.text ?? ""}, ${f(weights[at])}`;
};
