// The residual stream's guesses as a table: a row for each sub-layer, a column for each token of the answer.
import { inkOn, ramp, rgb } from "./colour.js";
import { h, short } from "./dom.js";
import { cut } from "./matrix.js";
import { clamp } from "./numbers.js";
import { rampBar } from "./opened.js";

const COLUMNS = 24; // steps that are shown; of more, those around the chosen one
const PARTS = { self: "self-attention", cross: "cross-attention", ff: "feed-forward" };

export function lens({ state, set }, pass, states) {
  const many = pass.answer.length,
    from = clamp(state.step - COLUMNS / 2, 0, Math.max(0, many - COLUMNS));
  const shown = Array.from({ length: Math.min(COLUMNS, many) }, (_, i) => from + i),
    read = pass.kind === "encoder" ? pass.source : pass.read;
  const cell = (at, guess, i) => {
    const colour = ramp(guess.right),
      percent = Math.round(100 * guess.p);
    return h(
      "td",
      {
        class: i === state.step ? "on" : "",
        style: { background: rgb(colour), color: inkOn(colour) },
        title: `${at}, step ${i + 1}: would answer ${guess.text} (${percent} %); ${pass.answer[i].text} has ${(100 * guess.right).toFixed(1)} %`,
        "data-right": guess.right,
        onclick: () => set({ step: i }),
      },
      cut(guess.text, 4),
      h("small", {}, String(percent)),
    );
  };
  const head = (label, tokens) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, label),
      shown.map(i => h("td", {}, short(tokens(i)).slice(0, 4))),
    );
  return h(
    "div",
    { id: "lens" },
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "group", "aria-label": "Guesses after each sub-layer, scrolls sideways" },
      h(
        "table",
        { class: "lens" },
        h(
          "thead",
          {},
          head(pass.kind === "encoder" ? "at" : "having read", i => read[pass.rows[i]].text),
          head("answers", i => pass.answer[i].text),
        ),
        h(
          "tbody",
          {},
          states.map(({ at, guesses }) =>
            h(
              "tr",
              { "data-at": at },
              h("th", { scope: "row" }, named(at)),
              shown.map(i => cell(named(at), guesses[i], i)),
            ),
          ),
        ),
      ),
    ),
    h(
      "p",
      { class: "legend" },
      "0",
      rampBar(),
      "1: probability of the answer. The number: its own guess, in per cent.",
      shown.length < many && ` Steps ${from + 1} to ${from + shown.length} of ${many}.`,
    ),
  );
}

const named = at => {
  const [, layer, part] = at.split(".");
  return part ? `layer ${layer} · ${PARTS[part]}` : at;
};
