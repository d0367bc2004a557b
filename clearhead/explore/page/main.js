// One text, what the model answers, and who looks at whom. Everything on the page comes from `source`.
import { openSource } from "./source.js";

const source = await openSource(), model = await source.model();
const state = { text: source.first ?? model.examples[0], off: [], step: 0, base: null, pass: null };

function make(name, text = "", parent = null, className = "") {
  const element = document.createElement(name);
  element.textContent = text;
  element.className = className;
  if (parent) parent.append(element);
  return element;
}

const app = document.getElementById("app");
make("h1", "Clearhead: one pass, seen from inside", app);
const form = make("form", "", app), label = make("label", "Text ", form), field = make("input", "", label);
field.value = state.text;
field.disabled = !source.alive;
if (source.alive) make("button", "Read it", form).type = "submit";
const problem = make("p", "", app, "problem"), answer = make("p", "", app, "answer"), edits = make("p", "", app);
problem.setAttribute("role", "alert");
make("h2", "Token by token", app);
const steps = make("div", "", app, "steps"), likely = make("ol", "", app);
make("h2", "Who looks at whom", app);
make("p", "A row is a query, a column a key; darker is more. Press a head to silence it, again to bring it back.", app);
const heads = make("div", "", app, "heads");

function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}

function showSteps() {
  const { pass } = state, said = pass.writing ?? pass.scoring;
  steps.replaceChildren();
  pass.answer.forEach((token, number) => {
    const button = make("button", token.text, steps, number === state.step ? "chosen" : "");
    button.type = "button";
    button.addEventListener("click", () => { state.step = number; showSteps(); });
  });
  likely.replaceChildren();
  for (const { text, p } of (said?.top?.[state.step] ?? []).slice(0, 5)) make("li", `${text}  ${(100 * p).toFixed(1)}%`, likely);
}

function showEdits() {
  edits.replaceChildren();
  if (!state.off.length) return;
  const changed = sum(state.pass.scoring.log_probs) - sum(state.base.scoring.log_probs);
  make("span", `Without ${state.off.join(", ")}: the log-probability of the first answer changes by ${changed.toFixed(2)}. `, edits);
  const undo = make("button", "Undo", edits);
  undo.type = "button";
  undo.addEventListener("click", () => { state.off.pop(); read(); });
}

function draw(canvas, tensor) {
  const [rows, columns] = tensor.shape, cell = Math.max(1, Math.min(10, Math.floor(160 / Math.max(rows, columns))));
  canvas.width = columns * cell;
  canvas.height = rows * cell;
  const context = canvas.getContext("2d");
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const weight = tensor.data[row * columns + column];
      context.fillStyle = `rgb(${Math.round(255 * (1 - weight))} ${Math.round(255 - 141 * weight)} ${Math.round(255 - 77 * weight)})`;
      context.fillRect(column * cell, row * cell, cell, cell);
    }
  }
}

async function showHeads() {
  const { pass } = state, wanted = [];
  for (const one of pass.attentions) one.entropy.forEach((_, head) => wanted.push({ at: `${one.at}.${head + 1}`, path: one.path, head }));
  const found = await source.tensors(pass.id, wanted.map(({ path, head }) => ({ name: `${path}.weights`, index: [0, head], pool: 80 })));
  heads.replaceChildren();
  wanted.forEach(({ at }, number) => {
    const button = make("button", "", heads, state.off.includes(at) ? "head off" : "head"), canvas = make("canvas", "", button);
    button.type = "button";
    button.disabled = !source.alive;
    button.setAttribute("aria-pressed", String(state.off.includes(at)));
    make("span", at, button);
    draw(canvas, found[number]);
    button.addEventListener("click", () => {
      state.off = state.off.includes(at) ? state.off.filter(other => other !== at) : [...state.off, at];
      read();
    });
  });
}

async function read() {
  problem.textContent = "";
  try {
    if (state.base?.text !== state.text || !state.off.length) state.base = await source.pass({ text: state.text });
    const ids = (state.base.writing ?? state.base.scoring)?.ids;
    state.pass = state.off.length ? await source.pass({ text: state.text, edits: { off: state.off }, answer: ids }) : state.base;
    state.step = Math.min(state.step, Math.max(0, state.pass.answer.length - 1));
    answer.textContent = `${state.pass.text} → ${state.pass.writing?.text ?? state.pass.answer.map(token => token.text).join(" ")}`;
    showEdits();
    showSteps();
    await showHeads();
  } catch (refusal) {
    problem.textContent = refusal.message;
  }
}

form.addEventListener("submit", event => {
  event.preventDefault();
  Object.assign(state, { text: field.value, off: [], step: 0 });
  read();
});
await read();
