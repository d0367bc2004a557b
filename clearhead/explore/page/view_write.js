// View 1, token by token: what comes next, and how sure is the model? The five likeliest tokens of a step; another can
// be forced. Greedy, beam as a tree, sampling with sliders.
import { bent } from "./bending.js";
import { drawTree } from "./tree.js";
import { h, say } from "./dom.js";
import { cut } from "./matrix.js";
import { clamp, count, f, pct, sum } from "./numbers.js";

export async function drawWrite(app, pass) {
  const { state, work, model, set } = app,
    reader = pass.kind === "encoder";
  const told = pass.writing ?? pass.scoring,
    step = clamp(state.step, 0, Math.max(0, pass.answer.length - 1));
  if (!told)
    return [
      h("h2", {}, "No answer to look at"),
      h("p", { class: "lede" }, "This model's head gives vectors, neither right nor wrong."),
    ];
  const size = reader && model.config.head.classes ? model.config.head.classes : model.config.vocab_size;
  const go = to => {
    const next = clamp(to, 0, pass.answer.length - 1);
    set({ step: next, ...(reader ? { src: pass.rows[next] } : {}) });
    say(`step ${next + 1}, ${pass.answer[next].text}`);
  };
  const smoothing = model.label_smoothing,
    bending = await bent(app, pass, step);
  return [
    h(
      "h2",
      {},
      reader
        ? model.config.head.classes
          ? "Which label does it get?"
          : "Which token stood here?"
        : "What comes next, and how sure is it?",
    ),
    h(
      "p",
      { class: "lede" },
      reader
        ? `For each place that is asked for, each of ${count(size)} answers gets a probability.`
        : `The model writes one token at a time. At each step it gives every one of its ${count(size)} tokens a probability. Click another one to force it, and see the rest change.`,
    ),
    h(
      "div",
      { class: "stepper" },
      h("button", { class: "btn", "data-key": "first", "aria-label": "First step", onclick: () => go(0) }, "⇤"),
      h("button", { class: "btn", "data-key": "back", "aria-label": "Step back", onclick: () => go(step - 1) }, "←"),
      h("span", { class: "num" }, `step ${step + 1} of ${pass.answer.length}`),
      h("button", { class: "btn", "data-key": "on", "aria-label": "Step on", onclick: () => go(step + 1) }, "→"),
      h("span", { class: "gap" }),
      pass.kind === "decoder" && work.source.alive && room(state, set),
      !reader && work.source.alive && modes(state, set),
    ),
    state.step < 0 &&
      h(
        "p",
        { class: "small soft" },
        "The chosen row is in the prompt: that token was given, not written. Shown is the first that was written.",
      ),
    h("div", { class: "bars", id: "bars" }, bars(app, pass, told, step, size, bending)),
    smoothing
      ? h(
          "p",
          { class: "small soft note" },
          `This run was trained with label smoothing ${smoothing}: that share of the target is spread over the whole vocabulary, so even a sure model stays near ${pct(1 - smoothing)}.`,
        )
      : null,
    state.mode === "sample" && !reader && sliders(app),
    state.mode === "beam" && state.force.length
      ? h("p", { class: "small soft" }, "With a forced token the search is greedy: a beam chooses for itself.")
      : null,
    state.mode === "beam" && pass.beam
      ? h(
          "div",
          { class: "block" },
          h("h3", {}, "Beam: kept and pruned"),
          h(
            "div",
            { class: "scroll", tabindex: 0, role: "group", "aria-label": "The tree, scrolls sideways" },
            drawTree(pass.beam, go),
          ),
          h(
            "p",
            { class: "small soft" },
            "Each number is the sum of log-probabilities so far; of what ended, the score by which the best is chosen. Dashed: looked at and pruned.",
          ),
        )
      : null,
    h(
      "div",
      { class: "block" },
      h(
        "h3",
        {},
        "All steps at once ",
        h("span", { class: "soft small plain" }, "bars: fourth root of the probability, so that small ones show"),
      ),
      h(
        "div",
        { class: "scroll", id: "grid", tabindex: 0, role: "group", "aria-label": "All steps, scrolls sideways" },
        grid(pass, told, step, go),
      ),
    ),
  ];
}

/** How much a language model may write: its text has no end of its own. */
function room({ tokens }, set) {
  const known = [...new Set([8, 16, 24, 48, 96, 200, 512, tokens])].sort((a, b) => a - b);
  return h(
    "label",
    { class: "small soft" },
    "up to ",
    h(
      "select",
      { class: "btn", id: "room", "data-key": "room", onchange: event => set({ tokens: Number(event.target.value) }) },
      known.map(count => h("option", { value: count, selected: count === tokens }, `${count} tokens`)),
    ),
  );
}

function modes(state, set) {
  return h(
    "div",
    { class: "seg", role: "group", "aria-label": "Search" },
    [
      ["greedy", "Greedy"],
      ["beam", "Beam 4"],
      ["sample", "Sampling"],
    ].map(([mode, name]) =>
      h(
        "button",
        { "data-key": mode, "aria-pressed": String(state.mode === mode), onclick: () => set({ mode }) },
        name,
      ),
    ),
  );
}

function bars(app, pass, told, step, size, bending) {
  const { state, set, work } = app,
    top = (told.top[step] ?? []).slice(0, 5),
    got = told.ids[step],
    forced = pass.writing?.forced.includes(step);
  const chanceOf = ({ id, p }) => (bending ? bending[id] : p);
  const can = work.source.alive && pass.writing && state.mode !== "beam";
  const row = one => {
    const { id, text, p } = one,
      here = id === got,
      chance = chanceOf(one);
    return h(
      "button",
      {
        class: `bar${here ? " got" : ""}${state.mode === "sample" && chance === 0 ? " pale" : ""}`,
        "data-key": `bar ${id}`,
        disabled: here || !can,
        "aria-label": `${text}, ${pct(chance)}${here ? (forced ? ", forced" : ", written") : can ? ", force it" : ""}`,
        onclick: () => {
          set({ force: [...state.force.filter(([at]) => at < step), [step, id]], before: 0 });
          say(`forced ${text} at step ${step + 1}`);
        },
      },
      h("span", { class: "t" }, text),
      track(chance),
      h("span", { class: "num", "data-p": p }, pct(chance)),
      h(
        "span",
        { class: "do" },
        here ? (forced ? "forced" : pass.writing ? "written" : "said") : can ? "force it" : "",
      ),
    );
  };
  const listed = [...top];
  if (!top.some(one => one.id === got) && told.log_probs)
    listed.push({ ...told.tokens[step], p: Math.exp(told.log_probs[step]) });
  const found = listed.map(row),
    rest = Math.max(0, 1 - sum(listed.map(chanceOf)));
  return [
    found,
    size > found.length &&
      h(
        "div",
        { class: "bar rest" },
        h("span", { class: "small soft" }, `+ ${count(Math.max(0, size - found.length))}`),
        track(rest),
        h("span", { class: "num" }, pct(rest)),
        h("span"),
      ),
  ];
}

const track = p => h("span", { class: "track" }, h("span", { class: "fill", style: { width: `${100 * p}%` } }));

function sliders({ state, set }) {
  const one = (key, name, low, high, by) =>
    h(
      "label",
      { class: "slider" },
      h("span", {}, `${name} `, h("output", { class: "num" }, f(state[key], by < 1 ? 2 : 0))),
      h("input", {
        type: "range",
        min: low,
        max: high,
        step: by,
        value: state[key],
        "data-key": key,
        oninput: event => set({ [key]: Number(event.target.value) }),
      }),
    );
  return h(
    "div",
    { class: "block" },
    h("h3", {}, "Sampling"),
    h(
      "div",
      { class: "sliders" },
      one("temperature", "temperature", 0, 3, 0.05),
      one("top_k", "top-k (0: all)", 0, 12, 1),
      one("top_p", "top-p", 0.05, 1, 0.05),
      h(
        "button",
        { class: "btn", "data-key": "again", onclick: () => set({ seed: (state.seed + 1) % 2 ** 32 }) },
        `Draw again (seed ${state.seed})`,
      ),
    ),
  );
}

function grid(pass, told, step, go) {
  const width = 58,
    from = Math.max(0, Math.min(step - 20, pass.answer.length - 40)),
    to = Math.min(pass.answer.length, from + 40);
  const steps = told.top.slice(from, to);
  return h(
    "svg",
    { width: steps.length * width, height: 148, role: "img", "aria-label": "the likeliest tokens of every step" },
    steps.map((top, n) => {
      const i = from + n;
      return h(
        "g",
        { transform: `translate(${n * width},0)`, class: "press", onclick: () => go(i) },
        h("rect", { width: width - 4, height: 146, rx: 5, class: i === step ? "frame on" : "frame" }),
        top.slice(0, 5).map(({ id, text, p }, j) => {
          const got = id === told.ids[i];
          return [
            h("rect", {
              x: 5,
              y: 6 + j * 28,
              width: Math.max(1, (width - 14) * p ** 0.25),
              height: 22,
              rx: 3,
              class: got ? "gotbar" : "softbar",
            }),
            h(
              "text",
              {
                x: 10,
                y: 22 + j * 28,
                "font-size": cut(text, 6).length > 5 ? 12 : 13,
                class: got && p > 0.06 ? "mono onpick" : "mono",
              },
              cut(text, 6),
            ),
          ];
        }),
      );
    }),
  );
}
