// The model as a drawing, made from its configuration: what is read goes in below, what comes next comes out above.
// A box chooses an attention, a square in it a head; the squares are shaded by what the heads are worth.
import { ramp, rgb } from "./colour.js";
import { fill, h, narrow } from "./dom.js";
import { cut } from "./matrix.js";

const MOST = 8; // layers that are drawn; of more, those around the chosen one

export function drawSpine(element, app) {
  const drawing = spine(app);
  fill(element, narrow() ? h("details", { "data-key": "spine" }, h("summary", {}, "The model"), drawing) : drawing);
}

function spine(app) {
  const { state, model, work, set } = app,
    { config } = model,
    pass = work.shown(state),
    two = model.kind === "encoder-decoder";
  const worth = work.known(pass, "worth"),
    stacks = [
      ["encoder", config.encoder_layers],
      ["decoder", config.decoder_layers],
    ].filter(([, layers]) => layers);
  const chosenLayer = Number(state.at.split(".")[1] ?? 1) - 1,
    high = Math.max(
      ...stacks.map(([stack, layers]) => visible(layers, chosenLayer).length * (stack === "decoder" && two ? 134 : 84)),
    );
  const base = high + 76,
    drawing = h("svg", {
      viewBox: `0 0 ${two ? 190 : 110} ${base + 62}`,
      role: "group",
      "aria-label": "the model",
      class: "model",
    });
  const box = (x, y, tall, text, label, on, go, ...more) =>
    drawing.append(
      h(
        "g",
        {
          role: "button",
          tabindex: 0,
          "data-key": label,
          class: on ? "on" : "",
          "aria-label": label,
          "aria-pressed": String(Boolean(on)),
          onclick: go,
          onkeydown: event => {
            if (event.key === "Enter" || event.key === " ") {
              event.preventDefault();
              go();
            }
          },
        },
        h("rect", { class: "box", x, y, width: 84, height: tall, rx: 5 }),
        h("text", { x: x + 42, y: y + 16, "text-anchor": "middle", "font-size": 12.5 }, text),
        more,
      ),
    );
  const squares = (at, x, y) => {
    const many = Math.min(config.heads, 16),
      wide = Math.min(17, 78 / many);
    return Array.from({ length: many }, (_, n) => {
      const amount = worth?.get(`${at}.${n + 1}`) ?? 0,
        on = at === state.at && n === state.head;
      return h(
        "rect",
        {
          x: x + 42 - (many * wide) / 2 + n * wide + 1,
          y: y + 23,
          width: wide - 3,
          height: 13,
          rx: 2,
          class: `square${on ? " on" : ""}${state.off.includes(`${at}.${n + 1}`) ? " off" : ""}`,
          style: { fill: rgb(ramp(0.12 + 0.88 * Math.min(1, Math.max(0, amount)))) },
          onclick: event => {
            event.stopPropagation();
            set({ at, head: n, view: state.view === "cell" ? "cell" : "look" });
          },
        },
        h("title", {}, `head ${n + 1}`),
      );
    });
  };
  stacks.forEach(([stack, layers], column) => {
    const x = 4 + column * 100,
      crossing = stack === "decoder" && two,
      shown = visible(layers, chosenLayer);
    let y = base;
    drawing.append(
      h("line", { x1: x + 42, x2: x + 42, y1: base, y2: two && stack === "encoder" ? base - high : 62 }),
      h(
        "text",
        { class: "f", x: x + 42, y: base + 44, "text-anchor": "middle", "font-size": 12 },
        stack === "encoder" ? "what it reads" : two ? "what it wrote" : "text so far",
      ),
    );
    box(x, base, 24, "embedding", `${stack} embedding`, false, () => set({ view: "cell" }));
    for (const layer of shown) {
      const parts = [["self", stack === "decoder" ? "masked self" : "self"], ...(crossing ? [["cross", "cross"]] : [])];
      for (const [kind, text] of parts) {
        const at = `${stack}.${layer + 1}.${kind}`;
        y -= 50;
        if (kind === "cross")
          drawing.append(h("line", { x1: 88, x2: x, y1: y + 21, y2: y + 21, class: state.at === at ? "hot" : "" }));
        box(
          x,
          y,
          42,
          text,
          `${at}`,
          state.at === at && ["look", "cell"].includes(state.view),
          () => set({ at, view: state.view === "cell" ? "cell" : "look" }),
          squares(at, x, y),
        );
      }
      y -= 34;
      box(
        x,
        y,
        26,
        "feed-fwd",
        `${stack}.${layer + 1} feed-forward`,
        false,
        () => set({ at: `${stack}.${layer + 1}.${crossing ? "cross" : "self"}`, view: "cell" }),
        h("title", {}, `layer ${layer + 1}`),
      );
    }
    if (two && stack === "encoder")
      drawing.append(
        h("path", { d: `M46,${base - high} V${base - high - 8} H94 V${base - 70}` }),
        h("text", { class: "f", x: 68, y: base - high - 14, "text-anchor": "middle", "font-size": 12 }, "memory"),
      );
    if (shown.length < layers)
      drawing.append(
        h(
          "text",
          { class: "f", x: x + 42, y: base + 58, "text-anchor": "middle", "font-size": 12 },
          `layers ${shown[0] + 1} to ${shown.at(-1) + 1} of ${layers}`,
        ),
      );
  });
  const last = 4 + (stacks.length - 1) * 100,
    token = pass.answer[Math.max(0, state.step)]?.text;
  if (token !== undefined) {
    box(last, 28, 32, "", `next token ${token}`, state.view === "write", () => set({ view: "write" }));
    drawing.append(
      h("text", { class: "next mono", x: last + 42, y: 50, "text-anchor": "middle", "font-size": 17 }, cut(token, 7)),
      h(
        "text",
        { class: "f", x: last + 42, y: 18, "text-anchor": "middle", "font-size": 12 },
        pass.kind === "encoder" ? "answer" : "next token",
      ),
    );
  }
  return drawing;
}

function visible(layers, chosen) {
  const from = Math.max(0, Math.min(layers - MOST, chosen - 3));
  return Array.from({ length: Math.min(MOST, layers) }, (_, i) => from + i);
}
