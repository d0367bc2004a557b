// Before and after, side by side: what is written, and for each token of the first answer the change of its
// log-probability when that answer is read in one pass.
import { h } from "./dom.js";
import { cut } from "./matrix.js";
import { f, signedText } from "./numbers.js";
import { editNames } from "./work.js";

export function compare({ state, work, model }) {
  const { base, changed } = work;
  if (!changed?.scoring || !base.scoring || !(state.off.length || state.sw.length)) return null;
  const changes = changed.scoring.log_probs.map((after, i) => after - base.scoring.log_probs[i]),
    most = Math.max(1, ...changes.map(Math.abs));
  const tokens = base.scoring.tokens,
    wide = `repeat(${tokens.length},minmax(2.6rem,3.2rem))`;
  const written = changed.writing
    ? [
        line("it wrote", h("span", { class: "mono" }, base.writing.text)),
        line("it writes", h("span", { class: "mono", id: "now" }, changed.writing.text)),
      ]
    : null;
  return h(
    "div",
    { class: "cmp", id: "compare" },
    h(
      "h3",
      {},
      editNames(state, model, changed)
        .map(one => one.text)
        .join(", "),
    ),
    written,
    line(
      "scoring",
      h(
        "div",
        { class: "scroll", tabindex: 0, role: "group", "aria-label": "Change of log-probability of each token" },
        h(
          "div",
          { class: "delta head", style: { gridTemplateColumns: wide } },
          tokens.map(token => h("span", { class: "mono" }, cut(token.text, 5))),
        ),
        h(
          "div",
          { class: "delta", id: "deltas", style: { gridTemplateColumns: wide } },
          changes.map(change =>
            h(
              "div",
              {},
              h("i", {
                class: change > 0 ? "up" : "",
                style: { height: `${Math.max(1, (32 * Math.abs(change)) / most)}px` },
              }),
              h("span", {}, signedText(change, 2)),
            ),
          ),
        ),
      ),
    ),
    h(
      "p",
      { class: "small soft" },
      `Change of log-probability of each token of the first answer, given the right ones before it: in all ${f(base.scoring.log_prob, 2)} → ${f(changed.scoring.log_prob, 2)}.`,
    ),
  );
}

const line = (name, what) => h("div", { class: "line" }, h("span", { class: "soft small" }, name), what);
