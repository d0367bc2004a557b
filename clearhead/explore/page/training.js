// The run over time: loss, rate and gradient norm, live while it is being trained, and the same sentence at every kept
// checkpoint, to scrub through.
import { h } from "./dom.js";
import { drawHead, layout } from "./matrix.js";
import { clamp, f } from "./numbers.js";
import { asTable } from "./opened.js";
import { sides, titleOf } from "./work.js";

const WIDE = 300,
  HIGH = 118,
  LEFT = 56,
  EVERY = 2000; // pixels, and milliseconds between two looks at the run
const CURVES = [
  ["loss", "loss", true],
  ["rate", "learning rate", false],
  ["norm", "gradient norm", true],
];
let watching = 0;

export async function training(app, pass) {
  const { work } = app,
    { metrics, checkpoints } = await work.history();
  watch(app);
  if (!metrics.length && !checkpoints.length) return null;
  const steps = metrics.map(row => row.step),
    last = steps.at(-1) ?? 0;
  return h(
    "div",
    { class: "block", id: "training" },
    h("h3", {}, "Training"),
    metrics.length
      ? h(
          "p",
          { class: "small soft" },
          `${last} of ${app.model.steps ?? "?"} steps. Dashed: kept checkpoints.${work.source.served ? " While the run is being trained, the curves go on." : ""}`,
        )
      : h("p", { class: "small soft" }, "No metrics were kept of this run."),
    h(
      "div",
      { class: "curves" },
      CURVES.map(([key, name, log]) => curve(metrics, key, name, log, checkpoints)),
    ),
    pass && checkpoints.length ? await scrubber(app, pass, checkpoints) : null,
  );
}

/** Look at the run again every two seconds while this view is shown. */
function watch(app) {
  clearTimeout(watching);
  if (!app.work.source.served) return;
  watching = setTimeout(async () => {
    if (app.state.view !== "layers") return;
    const found = await app.work.more().catch(() => false); // a server that is gone says so when it is asked for something
    if (app.state.view !== "layers") return;
    if (found) app.redraw();
    else watch(app);
  }, EVERY);
}

// ---- curves --------------------------------------------------------------------------------------------------------

function curve(metrics, key, name, log, checkpoints) {
  const rows = metrics.filter(row => Number.isFinite(row[key]) && (!log || row[key] > 0));
  if (rows.length < 2) return null;
  const scale = log ? Math.log10 : value => value,
    values = rows.map(row => scale(row[key])),
    low = Math.min(...values),
    high = Math.max(...values);
  const first = rows[0].step,
    last = rows.at(-1).step,
    x = step => LEFT + ((WIDE - LEFT - 8) * (step - first)) / (last - first || 1),
    y = value => 8 + ((HIGH - 30) * (high - value)) / (high - low || 1);
  const path = rows.map((row, i) => `${i ? "L" : "M"}${x(row.step).toFixed(1)},${y(values[i]).toFixed(1)}`).join("");
  const ticks = [high, (high + low) / 2, low];
  return h(
    "figure",
    { class: "curve", "data-curve": key },
    h(
      "figcaption",
      { class: "small soft" },
      `${name}${log ? ", logarithmic" : ""}: `,
      h("span", { class: "num" }, number(rows.at(-1)[key])),
    ),
    h(
      "svg",
      {
        viewBox: `0 0 ${WIDE} ${HIGH}`,
        class: "fit",
        role: "img",
        "aria-label": `${name} from ${number(rows[0][key])} to ${number(rows.at(-1)[key])}`,
      },
      ticks.map(value => [
        h("line", { x1: LEFT, x2: WIDE - 8, y1: y(value), y2: y(value), class: "gridline" }),
        h(
          "text",
          { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end", "font-size": 12, class: "f" },
          number(log ? 10 ** value : value),
        ),
      ]),
      checkpoints
        .filter(one => one.step >= first && one.step <= last)
        .map(one =>
          h(
            "line",
            { x1: x(one.step), x2: x(one.step), y1: 4, y2: HIGH - 22, class: "kept" },
            h("title", {}, one.name),
          ),
        ),
      h("path", { d: path, class: "line" }),
      [first, last].map((step, i) =>
        h(
          "text",
          { x: x(step), y: HIGH - 6, "text-anchor": i ? "end" : "start", "font-size": 12, class: "f" },
          `step ${step}`,
        ),
      ),
    ),
  );
}

const number = value =>
  value === 0
    ? "0"
    : Math.abs(value) >= 1e-3 && Math.abs(value) < 1e4
      ? Number(value.toPrecision(3)).toString()
      : value.toExponential(1);

// ---- checkpoints ---------------------------------------------------------------------------------------------------

async function scrubber(app, pass, checkpoints) {
  const { state, work, set, model } = app,
    place = clamp(
      checkpoints.findIndex(one => one.name === (state.ck || model.checkpoint)),
      0,
      checkpoints.length - 1,
    );
  const one = checkpoints[place],
    found = await work.checkpoint(pass, state, one.name),
    around = sides(found.pass, state),
    { name, layer } = titleOf(state.at);
  const room = Math.min(420, (document.getElementById("view").clientWidth || 600) - 8),
    picture = drawHead(found.head, around, layout(around, room));
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", `${name}, layer ${layer}, head ${state.head + 1} at ${one.name}`);
  const slide = h("input", {
    type: "range",
    min: 0,
    max: checkpoints.length - 1,
    step: 1,
    value: place,
    "data-key": "scrub",
    id: "scrub",
    "aria-label": "Checkpoint",
    "aria-valuetext": one.name,
    oninput: event => set({ ck: checkpoints[event.target.value].name }),
  });
  return h(
    "div",
    { class: "block" },
    h("h3", {}, "The same sentence at each kept checkpoint"),
    h("p", { class: "small soft" }, `${name}, layer ${layer}, head ${state.head + 1}`),
    checkpoints.length > 1 ? h("p", {}, slide) : null,
    h(
      "dl",
      { class: "facts" },
      h("dt", {}, "checkpoint"),
      h(
        "dd",
        { id: "checkpoint" },
        `${one.step === null ? one.name : `step ${one.step}`}${one.best ? ", best" : ""}${one.latest ? ", latest" : ""}`,
      ),
      found.pass.writing && [h("dt", {}, "writes"), h("dd", { id: "thenWrites" }, found.pass.writing.text)],
      found.pass.scoring && [
        h("dt", {}, "scores this answer"),
        h("dd", { id: "thenScores" }, `log-p ${f(found.pass.scoring.log_prob, 2)}`),
      ],
    ),
    picture,
    asTable(found.head, around, "table then"),
  );
}
