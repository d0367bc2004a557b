// The model as a drawing, made from its configuration: what is read goes in below, what comes next comes out above.
// A box chooses an attention, a square in it a head; the squares are shaded by what the heads are worth.
import { ramp, rgb } from "./colour.js";
import { fill, h, narrow } from "./dom.js";
import { cut } from "./matrix.js";
import { count } from "./numbers.js";

const MOST = 8; // layers that are drawn; of more, those around the chosen one
const WIDE = 84,
  STEP = 100,
  TOP = 106; // pixels: a box, from stack to stack, and what stands above the layers
const TALL = { self: 42, cross: 42, ff: 26 },
  GAP = 9,
  BETWEEN = 18; // a box by what it is, and the space around it

export function drawSpine(element, app) {
  const drawing = [h("p", { class: "small soft caption" }, sizes(app.model)), spine(app)];
  fill(element, narrow() ? h("details", { "data-key": "spine" }, h("summary", {}, "The model"), drawing) : drawing);
}

function sizes({ config, parameters }) {
  const layers = [config.encoder_layers, config.decoder_layers].filter(Boolean).join(" + ");
  return `${layers} layers, ${config.heads} heads, D = ${config.d_model}, ${count(parameters)} parameters`;
}

function spine(app) {
  const { state, model, work } = app,
    { config } = model,
    pass = work.shown(state),
    two = model.kind === "encoder-decoder";
  const stacks = ["encoder", "decoder"].filter(stack => config[`${stack}_layers`] > 0);
  const chosen = Number(state.at.split(".")[1] ?? 1) - 1;
  const layers = Object.fromEntries(stacks.map(stack => [stack, around(config[`${stack}_layers`], chosen)]));
  const parts = stack => (stack === "decoder" && two ? ["self", "cross", "ff"] : ["self", "ff"]);
  const tall =
    Math.max(...stacks.map(stack => parts(stack).reduce((sum, part) => sum + TALL[part] + GAP, 0))) + BETWEEN;
  const rows = Math.max(...Object.values(layers).map(shown => shown.length)),
    base = TOP + rows * tall;
  const drawing = h("svg", {
    viewBox: `0 0 ${4 + stacks.length * STEP} ${base + 62}`,
    role: "group",
    "aria-label": "the model",
    class: "model",
    style: { maxWidth: `${Math.round(1.1 * (4 + stacks.length * STEP))}px` },
  });
  const say = (text, x, y) =>
    drawing.append(h("text", { class: "f", x, y, "text-anchor": "middle", "font-size": 12 }, text));
  const line = (path, hot) => drawing.append(h("path", { d: path, class: hot ? "hot" : "" }));

  const boxes = []; // drawn last, above the lines
  const crossings = [];
  stacks.forEach((stack, column) => {
    const x = 4 + column * STEP,
      middle = x + WIDE / 2,
      last = stack === stacks.at(-1);
    layers[stack].forEach((layer, row) => {
      let y = base - row * tall;
      for (const part of parts(stack)) {
        y -= TALL[part] + GAP;
        boxes.push(
          part === "ff" ? feedForward(app, stack, layer, x, y) : attention(app, `${stack}.${layer + 1}.${part}`, x, y),
        );
        if (part === "cross") crossings.push({ y: y + TALL.cross / 2, on: state.at === `${stack}.${layer + 1}.cross` });
      }
    });
    const end =
      base - (layers[stack].length - 1) * tall - parts(stack).reduce((sum, part) => sum + TALL[part] + GAP, 0);
    line(`M${middle},${base} V${last ? 60 : end}`);
    say(stack === "encoder" ? "what it reads" : two ? "what it wrote" : "text so far", middle, base + 42);
    const all = config[`${stack}_layers`],
      shown = layers[stack];
    if (shown.length < all) say(`layers ${shown[0] + 1} to ${shown.at(-1) + 1} of ${all}`, middle, base + 57);
    boxes.push(
      box(x, base, 24, "embedding", `${stack} embedding`, false, () =>
        app.set({ view: "cell", ...firstOf(model, stack) }),
      ),
    );
  });
  if (two) {
    const from = 4 + WIDE / 2,
      end = base - (layers.encoder.length - 1) * tall - TALL.self - TALL.ff - 2 * GAP,
      turn = 4 + STEP - 8;
    const top = Math.min(end - 10, Math.min(...crossings.map(one => one.y)) - 6);
    line(
      `M${from},${end} V${top + 14} Q${from},${top} ${(from + turn) / 2},${top} Q${turn},${top} ${turn},${top + 14}`,
      state.at.endsWith(".cross"),
    );
    const furthest = Math.max(...crossings.map(one => one.y));
    line(`M${turn},${top + 14} V${furthest}`);
    for (const one of crossings) line(`M${turn},${one.y} H${4 + STEP}`, one.on);
    const hot = crossings.find(one => one.on);
    if (hot) line(`M${turn},${top + 14} V${hot.y}`, true);
    say("memory", (from + turn) / 2, top - 6);
  }
  const x = 4 + (stacks.length - 1) * STEP;
  boxes.push(
    box(
      x,
      70,
      24,
      model.config.head.kind === "none" ? "norm" : "norm, head",
      "norm and head",
      state.view === "layers",
      () => app.set({ view: "layers" }),
    ),
  );
  boxes.push(answer(app, pass, x));
  drawing.append(...boxes.filter(Boolean));
  return drawing;
}

const firstOf = (model, stack) => ({ at: model.attentions.find(one => one.stack === stack).at });

/** The layers that are drawn. */
function around(layers, chosen) {
  const from = Math.max(0, Math.min(layers - MOST, chosen - 3));
  return Array.from({ length: Math.min(MOST, layers) }, (_, i) => from + i);
}

function box(x, y, tall, text, label, on, go, ...more) {
  const press = event => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    go();
  };
  return h(
    "g",
    {
      role: "button",
      tabindex: 0,
      "data-key": label,
      class: on ? "on" : "",
      "aria-label": label,
      "aria-pressed": String(Boolean(on)),
      onclick: go,
      onkeydown: press,
    },
    h("rect", { class: "box", x, y, width: WIDE, height: tall, rx: 5 }),
    h("text", { x: x + WIDE / 2, y: y + 16, "text-anchor": "middle", "font-size": 12.5 }, text),
    more,
  );
}

function attention({ state, set, model, work }, at, x, y) {
  const [stack, , kind] = at.split("."),
    worth = work.known(work.shown(state), "worth");
  const open = change => set({ at, view: state.view === "cell" ? "cell" : "look", ...change });
  const many = Math.min(model.config.heads, 16),
    wide = Math.min(17, (WIDE - 6) / many);
  const squares = Array.from({ length: many }, (_, n) => {
    const name = `${at}.${n + 1}`,
      chosen = at === state.at && n === state.head,
      off = state.off.includes(name);
    const amount = Math.max(0, Math.min(1, worth?.get(name) ?? 0));
    const choose = event => {
      event.stopPropagation();
      open({ head: n });
    };
    return h(
      "rect",
      {
        x: x + WIDE / 2 - (many * wide) / 2 + n * wide + 1,
        y: y + 23,
        width: wide - 3,
        height: 13,
        rx: 2,
        class: `square${chosen ? " on" : ""}${off ? " off" : ""}`,
        style: { fill: rgb(ramp(0.12 + 0.88 * amount)) },
        onclick: choose,
      },
      h(
        "title",
        {},
        `head ${n + 1}${off ? ", silenced" : ""}${worth ? `, worth ${worth.get(name)?.toFixed(2)} nats` : ""}`,
      ),
    );
  });
  const named = kind === "cross" ? "cross" : stack === "decoder" ? "masked self" : "self";
  return box(
    x,
    y,
    TALL[kind],
    named,
    at,
    state.at === at && ["look", "cell"].includes(state.view),
    () => open({}),
    squares,
  );
}

function feedForward({ set, model }, stack, layer, x, y) {
  const kind = stack === "decoder" && model.kind === "encoder-decoder" ? "cross" : "self";
  const go = () => set({ at: `${stack}.${layer + 1}.${kind}`, view: "cell" });
  return box(
    x,
    y,
    TALL.ff,
    "feed-fwd",
    `${stack}.${layer + 1} feed-forward`,
    false,
    go,
    h("title", {}, `layer ${layer + 1}`),
  );
}

function answer({ state, set }, pass, x) {
  const token = pass.answer[Math.max(0, state.step)]?.text;
  if (token === undefined) return null;
  const middle = x + WIDE / 2;
  return box(
    x,
    24,
    34,
    "",
    `next token ${token}`,
    state.view === "write",
    () => set({ view: "write" }),
    h("text", { class: "next mono", x: middle, y: 47, "text-anchor": "middle", "font-size": 17 }, cut(token, 7)),
    h(
      "text",
      { class: "f", x: middle, y: 15, "text-anchor": "middle", "font-size": 12 },
      pass.kind === "encoder" ? "answer" : "next token",
    ),
  );
}
