// View 4, switches: what breaks when one piece is missing? The trained weights stay; one line of the pass changes. That
// is not training without it: what the lab measured about that stands beside. Writing and scoring are shown apart.
import { compare } from "./compare.js";
import { h, say } from "./dom.js";
import { f } from "./numbers.js";

const NOTES = {
  mask: "Writing often does not notice: the newest token has no future to look at. Reading the finished answer in one go, as in training, every token sees those after it, and the probabilities collapse. So a wrong mask hides.",
  late: "Writing does not notice: for the newest token nothing is hidden. In one go, the rows above it keep only a part of their sum, and nothing crashes.",
};

export async function drawSwitch(app) {
  const { state, work, model, set } = app,
    texts = [...new Set([state.text, ...model.examples])].slice(0, 3),
    alive = work.source.alive;
  const before = alive ? await Promise.all(texts.map(text => work.plain(state, text, []))) : [];
  const rows = await Promise.all(
    model.switches.map(async one => ({
      ...one,
      off: state.sw.includes(one.id),
      after: state.sw.includes(one.id)
        ? await Promise.all(texts.map((text, i) => work.plain(state, text, [one.id], before[i])))
        : [],
    })),
  );
  return [
    h("h2", {}, "What breaks when one piece is missing?"),
    h(
      "p",
      { class: "lede" },
      "The trained weights stay as they are; one line of the pass changes. That is not the same as training without it: what the lab measured about that stands beside.",
    ),
    h(
      "div",
      { class: "small soft mono texts" },
      before.map((made, i) => h("span", {}, `${"ABC"[i]}  ${texts[i]} → ${written(made)}`)),
    ),
    compare(app),
    rows.map(one =>
      h(
        "div",
        { class: "sw", "data-switch": one.id },
        h("button", {
          class: "toggle",
          role: "switch",
          "data-key": `switch ${one.id}`,
          disabled: !alive,
          "aria-checked": String(!one.off),
          "aria-label": one.name,
          onclick: () => {
            set({ sw: one.off ? state.sw.filter(id => id !== one.id) : [...state.sw, one.id], before: 0 });
            say(`${one.name} ${one.off ? "on" : "off"}`);
          },
        }),
        h("div", {}, h("b", {}, one.name), h("div", { class: "small soft mono" }, one.off ? one.code : "")),
        h(
          "div",
          {},
          one.off
            ? h(
                "div",
                { class: "outs" },
                one.after.map((made, i) =>
                  h(
                    "span",
                    {},
                    h(
                      "span",
                      { class: "o" },
                      `${"ABC"[i]} `,
                      made.writing ? ["writes ", different(written(made), written(before[i]))] : null,
                    ),
                    h(
                      "span",
                      { class: "dl" },
                      `scores the first answer: log-p ${f(before[i].scoring?.log_prob, 2)} → ${f(made.scoring?.log_prob, 2)}`,
                    ),
                  ),
                ),
              )
            : null,
          one.off && NOTES[one.id] ? h("p", { class: "small note" }, NOTES[one.id]) : null,
          h(
            "p",
            { class: "verdict" },
            one.experiment
              ? [
                  "lab · ",
                  h("span", { class: "mono" }, one.experiment),
                  `: “${one.claim}” `,
                  h("b", {}, `${one.verdict}. `),
                  one.why,
                ]
              : "No experiment yet on leaving it out.",
          ),
        ),
      ),
    ),
    state.sw.length > 1
      ? h(
          "p",
          { class: "small soft" },
          "Each row shows its own switch alone; the third line of the sentence shows all of them together.",
        )
      : null,
  ];
}

const written = made => made.writing?.text ?? made.scoring?.text ?? "";
const different = (text, other) => {
  const right = [...other];
  return [...text].map((letter, i) => (letter === right[i] ? letter : h("span", { class: "ch" }, letter)));
};
