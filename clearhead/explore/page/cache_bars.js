// What the two caches hold: self-attention's keys and values grow by a token a step, cross-attention's are made once.
import { h, short } from "./dom.js";
import { clamp, count } from "./numbers.js";

const HIGH = 120,
  COLUMNS = 48;

export function cacheBars({ state, set }, { cache, answer }) {
  if (!cache || !cache.self.length) return null;
  const many = cache.self.length,
    from = clamp(state.step - COLUMNS / 2, 0, Math.max(0, many - COLUMNS)),
    shown = Array.from({ length: Math.min(COLUMNS, many) }, (_, i) => from + i);
  const most = cache.self.at(-1) + cache.cross,
    wide = Math.max(14, Math.min(40, Math.floor(560 / shown.length))),
    y = bytes => (HIGH * bytes) / most;
  const step = clamp(state.step, 0, many - 1),
    own = cache.self[step];
  const bar = (i, n) =>
    h(
      "g",
      { class: "press", onclick: () => set({ step: i }) },
      h("rect", {
        x: n * wide,
        y: HIGH - y(cache.self[i] + cache.cross),
        width: wide - 4,
        height: Math.max(1, y(cache.self[i])),
        class: i === step ? "gotbar" : "fullbar",
      }),
      h("rect", { x: n * wide, y: HIGH - y(cache.cross), width: wide - 4, height: y(cache.cross), class: "softbar" }),
      h(
        "text",
        { x: n * wide + wide / 2 - 2, y: HIGH + 16, "text-anchor": "middle", "font-size": 12, class: "mono" },
        [...short(answer[i].text)].slice(0, wide > 30 ? 3 : 1).join(""),
      ),
      h("title", {}, `step ${i + 1}: ${count(cache.self[i] + cache.cross)} bytes`),
    );
  const told = cache.cross
    ? `self-attention ${count(own)} bytes (${count(cache.token)} a token) + cross-attention ${count(cache.cross)} bytes, made once`
    : `${count(own)} bytes (${count(cache.token)} a token)`;
  return h(
    "div",
    { class: "block", id: "cache" },
    h("h3", {}, "What the caches hold"),
    h(
      "p",
      { class: "small soft note" },
      "Earlier tokens never see later ones, so their keys and values never change: they are kept, not made again.",
    ),
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "group", "aria-label": "Bytes of the caches, scrolls sideways" },
      h("svg", { width: shown.length * wide, height: HIGH + 24, role: "img", "aria-label": told }, shown.map(bar)),
    ),
    h(
      "p",
      { class: "legend" },
      h("span", { class: "swatch full" }),
      "self: grows",
      cache.cross ? [h("span", { class: "swatch faint" }), "cross: made once"] : null,
    ),
    h("p", { class: "num" }, `step ${step + 1}: ${told}`),
  );
}
