// The sentence, always there: what the model reads, what it writes, and below, as a third line, what every edit made of
// it, with the change of log-probability and a way back.
import { fill, h, say } from "./dom.js";
import { f, signedText } from "./numbers.js";
import { editNames, pickSource } from "./work.js";

export function drawSentence(element, { state, work, model, set, weights }) {
  const { base, changed } = work,
    reader = base.kind === "encoder",
    language = base.kind === "decoder";
  const lines = [];
  const source = language ? base.read.slice(0, base.prompt) : base.source;
  const rowTokens = source.map((token, i) => sourceToken(token, i, { state, base, set, weights, language }));
  if (language) lines.push(label("It goes on"), h("div", { class: "toks" }, rowTokens, written(base, state, set)));
  else {
    lines.push(label("It reads"), h("div", { class: "toks" }, rowTokens));
    if (base.answer.length)
      lines.push(label(reader ? "It says" : "It writes"), h("div", { class: "toks" }, written(base, state, set)));
  }
  if (changed)
    lines.push(
      label("Edited"),
      h(
        "div",
        { class: "edited", id: "edited" },
        h("div", { class: "toks" }, written(changed, state, set, base)),
        numbers(base, changed, state),
        which(state, set),
        undo(state, model, changed, set),
      ),
    );
  if (base.cut)
    lines.push(
      label(""),
      h("p", { class: "small soft" }, "The text is longer than the model reads; the rest was left out."),
    );
  fill(element, lines);
  for (const line of element.querySelectorAll(".toks")) {
    line.classList.toggle("long", line.children.length > 64);
    const chosen = line.querySelector(".chosen") ?? line.querySelector(".key");
    if (chosen && line.scrollWidth > line.clientWidth)
      line.scrollLeft = chosen.offsetLeft - line.offsetLeft - line.clientWidth / 2;
  }
}

const label = text => h("p", { class: "label" }, text);

function sourceToken(token, i, { state, base, set, weights, language }) {
  const encoder = state.at.startsWith("encoder"),
    row = language ? i - base.prompt + 1 : i;
  const looks = (encoder && i === state.src) || (language && i === base.prompt + state.step),
    key = language ? state.at && i === state.back : i === (encoder ? state.to : state.src);
  const weight = weights && i < weights.length ? weights[i] : 0;
  return h(
    "button",
    {
      class: `tok${token.text === "␣" ? " sp" : ""}${looks ? " chosen" : ""}${key && !looks ? " key" : ""}`,
      "data-key": `s${i}`,
      title: `${language ? "prompt" : "source"} token ${i + 1}, id ${token.id}`,
      "aria-pressed": String(looks || key),
      onclick: () => {
        set(language ? { back: i, step: Math.min(state.step, base.answer.length - 1) } : pickSource(base, i));
        say(`source token ${i + 1}, ${token.text}`);
      },
    },
    token.text,
    weight > 0.004 && h("i", { style: { transform: `scaleX(${weight})` }, "data-row": row }),
  );
}

function written(pass, state, set, before = null) {
  return pass.answer.map((token, i) =>
    h(
      "button",
      {
        class: `tok${i === state.step ? " chosen" : ""}${state.view === "write" && i > state.step && pass.kind !== "encoder" ? " later" : ""}${before && before.answer[i]?.id !== token.id ? " changed" : ""}${pass.writing?.forced.includes(i) ? " forced" : ""}`,
        "data-key": `${before ? "e" : "w"}${i}`,
        title: `step ${i + 1}, id ${token.id}`,
        "aria-pressed": String(i === state.step),
        onclick: () => {
          set(pass.kind === "encoder" ? { step: i, src: pass.rows[i] } : { step: i });
          say(`step ${i + 1}, ${token.text}`);
        },
      },
      token.text,
    ),
  );
}

/** Writing and scoring, apart. */
function numbers(base, changed, state) {
  const parts = [];
  if (changed.writing)
    parts.push(
      h(
        "span",
        { class: "num nowrap", id: "writing" },
        `writing: log-p ${f(base.writing.log_prob, 2)} → ${f(changed.writing.log_prob, 2)}`,
      ),
    );
  if (changed.scoring && base.scoring && (state.off.length || state.sw.length)) {
    const change = changed.scoring.log_prob - base.scoring.log_prob;
    parts.push(
      h("span", { class: "num nowrap", id: "scoring" }, `scoring the first answer: Δ log-p ${signedText(change, 2)}`),
    );
  }
  return parts;
}

/** The views draw the edited pass, or on request that before. */
function which(state, set) {
  const one = (before, text) =>
    h(
      "button",
      {
        "data-key": `before ${before}`,
        "aria-pressed": String(state.before === before),
        onclick: () => set({ before }),
      },
      text,
    );
  return h(
    "span",
    { class: "seg which", role: "group", "aria-label": "Which pass the views show" },
    one(1, "before"),
    one(0, "after"),
  );
}

function undo(state, model, changed, set) {
  const named = editNames(state, model, changed);
  return [
    named.map(one =>
      h(
        "button",
        {
          class: "btn small-btn",
          "data-key": `undo ${one.text}`,
          "aria-label": `Undo: ${one.text}`,
          onclick: () => set(one.without),
        },
        `${one.text} ×`,
      ),
    ),
    h(
      "button",
      {
        class: "btn small-btn",
        id: "undo",
        "data-key": "undo",
        onclick: () => {
          set({ force: [], off: [], sw: [], before: 0 });
          say("all edits undone");
        },
      },
      named.length > 1 ? "Undo all" : "Undo",
    ),
  ];
}
