// The sentence, always there: what the model reads, what it writes, and below, as a third line, what every edit made of
// it, with the change of log-probability and a way back. Its tokens are made once for a pass; a choice only marks them.
import { fill, h, say } from "./dom.js";
import { readable } from "./glyphs.js";
import { f, signedText } from "./numbers.js";
import { editNames, pickSource } from "./work.js";

const LONG = 64; // tokens; more stand on one line that scrolls
let made = { base: null, changed: null, edits: "" },
  marks = [];

export function drawSentence(element, app) {
  const { state, work } = app,
    { base, changed } = work,
    edits = JSON.stringify([state.force, state.off, state.sw, state.before]);
  if (made.base !== base || made.changed !== changed || made.edits !== edits || !element.firstChild) {
    made = { base, changed, edits };
    marks = [];
    fill(element, lines(app));
  }
  for (const mark of marks) mark(app);
  for (const line of element.querySelectorAll(".toks")) {
    const chosen = line.querySelector(".chosen") ?? line.querySelector(".key");
    if (chosen && line.scrollWidth > line.clientWidth)
      line.scrollLeft = chosen.offsetLeft - line.offsetLeft - line.clientWidth / 2;
  }
}

function lines(app) {
  const { state, work, model, set } = app,
    { base, changed } = work,
    language = base.kind === "decoder";
  const read = (language ? base.read.slice(0, base.prompt) : base.source).map((token, i) =>
    sourceToken(app, token, i, language),
  );
  const made = [];
  if (language) made.push(label("It goes on"), row([...read, ...written(app, base)]));
  else {
    made.push(label("It reads"), row(read));
    if (base.answer.length)
      made.push(label(base.kind === "encoder" ? "It says" : "It writes"), row(written(app, base)));
  }
  if (changed)
    made.push(
      label("Edited"),
      h(
        "div",
        { class: "edited", id: "edited" },
        row(written(app, changed, base)),
        numbers(base, changed, state),
        which(state, set),
        undo(state, model, changed, set),
      ),
    );
  if (base.cut)
    made.push(
      label(""),
      h("p", { class: "small soft" }, "The text is longer than the model reads; the rest was left out."),
    );
  return made;
}

const label = text => h("p", { class: "label" }, text);
const row = tokens => h("div", { class: tokens.length > LONG ? "toks long" : "toks" }, tokens);

/** Give an element the classes that are true, and say whether it is pressed. */
function show(element, classes, pressed) {
  const wanted = Object.keys(classes)
    .filter(name => classes[name])
    .join(" ");
  if (element.className !== wanted) element.className = wanted;
  if (element.getAttribute("aria-pressed") !== String(pressed)) element.setAttribute("aria-pressed", String(pressed));
}

function sourceToken(app, token, i, language) {
  const { base } = app.work,
    bar = h("i", { hidden: true });
  const choose = () => {
    app.set(language ? { back: i } : pickSource(base, i));
    say(`source token ${i + 1}, ${token.text}`);
  };
  const element = h(
    "button",
    { "data-key": `s${i}`, title: `${language ? "prompt" : "source"} token ${i + 1}, id ${token.id}`, onclick: choose },
    readable(token.text),
    bar,
  );
  marks.push(({ state, weights }) => {
    const encoder = state.at.startsWith("encoder"),
      looks = (encoder && i === state.src) || (language && i === base.prompt + state.step);
    const key = language ? Boolean(state.at) && i === state.back : i === (encoder ? state.to : state.src),
      weight = weights && i < weights.length ? weights[i] : 0;
    show(element, { tok: true, sp: token.text === "␣", chosen: looks, key: key && !looks }, looks || key);
    bar.hidden = !(weight > 0.004);
    if (!bar.hidden) bar.style.transform = `scaleX(${weight})`;
  });
  return element;
}

function written({ set }, pass, before = null) {
  return pass.answer.map((token, i) => {
    const choose = () => {
      set(pass.kind === "encoder" ? { step: i, src: pass.rows[i] } : { step: i });
      say(`step ${i + 1}, ${token.text}`);
    };
    const element = h(
      "button",
      { "data-key": `${before ? "e" : "w"}${i}`, title: `step ${i + 1}, id ${token.id}`, onclick: choose },
      readable(token.text),
    );
    marks.push(({ state }) =>
      show(
        element,
        {
          tok: true,
          chosen: i === state.step,
          later: state.view === "write" && i > state.step && pass.kind !== "encoder",
          changed: before && before.answer[i]?.id !== token.id,
          forced: pass.writing?.forced.includes(i),
        },
        i === state.step,
      ),
    );
    return element;
  });
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
  const named = editNames(state, model, changed),
    all = () => {
      set({ force: [], off: [], sw: [], before: 0 });
      say("all edits undone");
    };
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
      { class: "btn small-btn", id: "undo", "data-key": "undo", onclick: all },
      named.length > 1 ? "Undo all" : "Undo",
    ),
  ];
}
