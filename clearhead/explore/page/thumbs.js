// Every head as a thumbnail, grouped by kind, in the order of worth, entropy or place. A line below each shows what it is
// worth for this text. Of long texts a head is shrunk by the maximum, never the mean: a sharp cell must survive.
import { isDark } from "./colour.js";
import { h, narrow } from "./dom.js";
import { copied, darkest, isLong, paint, sheet } from "./matrix.js";
import { clamp, f } from "./numbers.js";
import { hiddenBy, titleOf } from "./work.js";

const painted = new Map(); // canvases by pass, head, size and theme

export async function thumbnails(app, pass, worth) {
  const { state, work, model, set } = app,
    size = narrow() ? 46 : 50,
    found = await small(work, pass, size * 2),
    heads = [];
  for (const one of pass.attentions)
    one.entropy.forEach((entropy, n) =>
      heads.push({
        ...one,
        n,
        entropy,
        name: `${one.at}.${n + 1}`,
        worth: worth?.get(`${one.at}.${n + 1}`) ?? null,
        picture: found.get(`${one.at}.${n + 1}`),
      }),
    );
  const most = Math.max(1e-9, ...heads.map(one => one.worth ?? 0)),
    groups = [
      ["cross", ".cross"],
      ["decoder", "decoder."],
      ["encoder", "encoder."],
    ];
  const kinds = groups
    .map(([kind]) => [kind, heads.filter(one => titleOf(one.at).kind === kind)])
    .filter(([, some]) => some.length);
  const order = {
    worth: (a, b) => (b.worth ?? 0) - (a.worth ?? 0),
    entropy: (a, b) => a.entropy - b.entropy,
    place: () => 0,
  }[state.sort];
  const thumb = one => {
    const chosen = one.at === state.at && one.n === state.head,
      off = state.off.includes(one.name),
      { layer } = titleOf(one.at);
    const told = `${titleOf(one.at).name}, layer ${layer}, head ${one.n + 1}: entropy ${f(one.entropy, 2)} bits${one.worth === null ? "" : `, worth ${f(one.worth, 2)} nats`}${off ? ", silenced" : ""}`;
    return h(
      "button",
      {
        class: `thumb${off ? " off" : ""}`,
        "data-key": one.name,
        "data-worth": one.worth,
        "data-entropy": one.entropy,
        "aria-pressed": String(chosen),
        "aria-label": told,
        title: told,
        onclick: () => set({ at: one.at, head: one.n }),
      },
      picture(one, pass, size),
      h("span", { class: "w" }, h("i", { style: { width: `${100 * clamp((one.worth ?? 0) / most, 0, 1)}%` } })),
      h("span", { class: "name" }, off ? "silenced" : `L${layer} H${one.n + 1}`),
    );
  };
  const bracket = group => h("span", { class: "shared", title: "these heads share keys and values" }, group.map(thumb));
  const shared =
    model.config.kv_heads && model.config.kv_heads < model.config.heads
      ? model.config.heads / model.config.kv_heads
      : 0;
  return h(
    "div",
    { id: "thumbs", class: "second" },
    h(
      "div",
      { class: "seg", role: "group", "aria-label": "Order of the heads" },
      [
        ["worth", "by worth"],
        ["entropy", "by entropy"],
        ["place", "by place"],
      ].map(([sort, text]) =>
        h(
          "button",
          { "data-key": `sort ${sort}`, "aria-pressed": String(state.sort === sort), onclick: () => set({ sort }) },
          text,
        ),
      ),
    ),
    kinds.map(([kind, some]) =>
      h(
        "div",
        { class: "group" },
        h("p", { class: "label" }, titleOf(some[0].at).name),
        (state.sort === "place" ? layersOf(some) : [some]).map(row =>
          h("div", { class: "row" }, shared ? brackets(row, shared, order).map(bracket) : [...row].sort(order).map(thumb)),
        ),
      ),
    ),
    shared > 1 && h("p", { class: "small soft note" }, `Under one line: ${shared} heads that share keys and values.`),
    h(
      "p",
      { class: "small soft note" },
      worth
        ? "The line below a head: what it is worth for this text, the log-probability (in nats) that the answer loses without it."
        : pass.answer.length
          ? [
              h("span", {}, "What each head is worth is not measured yet. "),
              h(
                "button",
                {
                  class: "btn small-btn",
                  id: "measure",
                  "data-key": "measure",
                  onclick: () => {
                    app.measure = pass.id;
                    app.redraw();
                  },
                },
                "Measure it",
              ),
            ]
          : "This model gives no answer, so that no head can be worth anything for it.",
    ),
  );
}

const layersOf = some => [...new Set(some.map(one => one.at))].map(at => some.filter(one => one.at === at));

/** Heads in groups that share keys and values; the groups stand in the order of their first heads. */
const brackets = (row, by, order) =>
  Array.from({ length: row.length / by }, (_, i) => row.slice(i * by, (i + 1) * by).sort(order)).sort((a, b) =>
    order(a[0], b[0]),
  );

function picture({ name, path, picture: head }, pass, size) {
  const key = `${pass.id} ${name} ${size} ${isDark()}`;
  if (!painted.has(key)) {
    if (painted.size > 2000) painted.clear();
    const { canvas, context } = sheet(size, size),
      long = isLong({ shape: pass.tensors.find(one => one.name === `${path}.weights`).shape.slice(-2) });
    const [rows, columns] = head.shape,
      oblong = Math.max(rows, columns) > 3 * Math.min(rows, columns),
      cell = size / Math.max(rows, columns);
    paint(context, head, 0, 0, oblong ? size / columns : cell, oblong ? size / rows : cell, darkest(head, long));
    painted.set(key, canvas);
  }
  return copied(painted.get(key));
}

/** Every head of a pass, shrunk by maximum. */
function small(work, pass, pool) {
  return work.once(pass, `small ${pool}`, async () => {
    const names = [],
      wanted = [];
    for (const one of pass.attentions) {
      if (pass.tensors.some(({ name }) => name === `${one.path}.mask`)) {
        names.push(null);
        wanted.push({ name: `${one.path}.mask`, pool });
      }
      one.entropy.forEach((_, n) => {
        names.push([one.path, `${one.at}.${n + 1}`]);
        wanted.push({ name: `${one.path}.weights`, index: [0, n], pool });
      });
    }
    const found = [],
      made = new Map();
    for (let from = 0; from < wanted.length; from += 400)
      found.push(...(await work.source.tensors(pass.id, wanted.slice(from, from + 400))));
    let mask = null;
    found.forEach((tensor, i) => {
      if (!names[i]) mask = tensor;
      else made.set(names[i][1], { ...tensor, hidden: hiddenBy(mask?.name === `${names[i][0]}.mask` ? mask : null) });
    });
    return made;
  });
}
