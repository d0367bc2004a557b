// View 2, who looks at whom: which part of the text became this token? Every head as a thumbnail, one opened, arcs for
// the chosen token; a head can be silenced. Where a head looks is not what it is worth: that is measured.
import { drawArcs } from "./arcs.js";
import { compare } from "./compare.js";
import { byId, h, narrow } from "./dom.js";
import { layout } from "./matrix.js";
import { opened } from "./opened.js";
import { thumbnails } from "./thumbs.js";
import { titleOf } from "./work.js";

const BESIDE = 320; // pixels: the column of thumbnails
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

export async function drawLook(app, pass, sides) {
  const { state, work, set } = app,
    { name, layer, kind } = titleOf(state.at),
    head = await work.head(pass, state.at, state.head);
  const worth = work.known(pass, "worth"),
    room = byId("view").clientWidth || 700,
    place = layout(sides, narrow() ? room : room - 40);
  const full = `${name}, layer ${layer}, head ${state.head + 1}`,
    columns = head.shape[1];
  const weights = state.mean
    ? await meanRow(work, pass, state.at, sides.row)
    : head.data.subarray(sides.row * columns, (sides.row + 1) * columns);
  const thumbs = await thumbnails(app, pass, worth),
    beside = place.width + BESIDE <= room; // else the opened head stands above the others, so that a click shows it
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
    h("div", { class: beside ? "cols block" : "cols block above" }, thumbs, opened(app, pass, sides, head, place, full, worth)),
  ];
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
