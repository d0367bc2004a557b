// The passes behind what is shown: the text as it is (`base`), the same with the edits (`edited`), and what was asked
// about them. Writing and scoring stay apart: an edited pass tells what is written now, and what the first answer, read
// in one pass, is worth now.
import { edited } from "./state.js";

export class Work {
  constructor(source, kind) {
    this.source = source;
    this.kind = kind; // of the model
    this.base = null; // without edits
    this.changed = null; // with them
    this.asked = {};
    this.plains = new Map();
    this.kept = new Map(); // what was asked about a pass, by its id and a name
  }

  /** The pass that the views draw. */
  shown(state) {
    return this.changed && !state.before ? this.changed : this.base;
  }

  search(state) {
    if (state.mode === "sample")
      return {
        kind: "sample",
        temperature: state.temperature,
        top_k: state.top_k,
        top_p: state.top_p,
        seed: state.seed,
      };
    return { kind: state.mode === "beam" && !state.force.length ? "beam" : "greedy" };
  }

  /** A language model could go on for long: how many tokens it may write. Other answers end by themselves. */
  room(state) {
    return this.kind === "decoder" ? { max_tokens: state.tokens } : {};
  }

  /** Read what the state says, as far as it is not read already. */
  async read(state) {
    const search = this.search(state),
      asked = { text: state.text, search, ...this.room(state) },
      key = JSON.stringify(asked);
    let { base } = this,
      changed = null;
    if (this.asked.base !== key) base = await this.source.pass(this.source.alive ? asked : { text: state.text });
    const edits = { force: state.force, off: state.off, sw: state.sw },
      editKey = JSON.stringify([key, edits]);
    if (edited(state)) {
      const ids = base.scoring?.ids ?? null;
      changed =
        this.asked.changed === editKey && this.changed
          ? this.changed
          : await this.source.pass({ ...asked, edits, ...(ids ? { answer: ids } : {}) });
    }
    if (base !== this.base || changed !== this.changed) {
      const ids = [base.id, changed?.id];
      for (const name of this.kept.keys()) if (!ids.includes(name.split(" ")[0])) this.kept.delete(name);
    }
    this.base = base;
    this.changed = changed;
    this.asked = { base: key, changed: editKey };
  }

  /** Read everything again when it is next asked for. */
  forget() {
    this.asked = {};
    this.kept.clear();
  }

  /** Whatever is asked about a pass is asked once. */
  once(pass, name, ask) {
    const key = `${pass.id} ${name}`;
    if (!this.kept.has(key)) {
      const promise = ask();
      promise.catch(() => this.kept.delete(key));
      this.kept.set(key, promise);
    }
    return this.kept.get(key);
  }

  /** Tensors of a pass: [{ name, index, pool }] → the same with shape and data. */
  tensors(pass, wanted) {
    return this.once(pass, JSON.stringify(wanted), () => this.source.tensors(pass.id, wanted));
  }
  /** What each head and layer is worth, by its name. */
  worth(pass) {
    return this.once(pass, "worth", async () => {
      const { heads, layers } = await this.source.worth(pass.id),
        found = new Map([...heads, ...layers].map(one => [one.at, one.worth]));
      this.kept.set(`${pass.id} known worth`, found);
      return found;
    });
  }
  /** What was asked about a pass and has come, or nothing. */
  known(pass, name) {
    return this.kept.get(`${pass.id} known ${name}`) ?? null;
  }
  guesses(pass) {
    return this.once(pass, "guesses", () => this.source.guesses(pass.id));
  }

  /** The run over time, as far as it was asked for; `more` asks for what came since, and says whether anything did. */
  async history() {
    this.told ??= await this.source.training(0);
    return this.told;
  }
  async more() {
    const before = await this.history(),
      { metrics, checkpoints } = await this.source.training(before.metrics.at(-1)?.step ?? 0);
    if (!metrics.length && checkpoints.length === before.checkpoints.length) return false;
    this.told = { metrics: [...before.metrics, ...metrics], checkpoints };
    return true;
  }

  /** A pass's answer read by another checkpoint, and the chosen head's weights there: { pass, head }. */
  checkpoint(pass, state, checkpoint) {
    const answer = pass.answer.map(one => one.id);
    return this.once(pass, `at ${checkpoint} ${state.at}.${state.head}`, async () => {
      const asked = { text: pass.text, checkpoint, look: "scoring", ...this.room(state), answer };
      if (!this.source.served && checkpoint === pass.checkpoint)
        return { pass, head: await this.head(pass, state.at, state.head) };
      const made = await this.source.pass(answer.length ? asked : { text: pass.text, checkpoint });
      return { pass: made, head: await this.head(made, state.at, state.head) };
    });
  }

  /** What a text becomes with some switches off, and what its first answer is worth then; no tensors are kept. */
  plain(state, text, sw, before = null) {
    const key = JSON.stringify([text, sw, this.room(state)]);
    if (!this.plains.has(key))
      this.plains.set(
        key,
        this.source.pass({
          text,
          ...this.room(state),
          keep: false,
          edits: { sw },
          ...(before?.scoring ? { answer: before.scoring.ids } : {}),
        }),
      );
    return this.plains.get(key);
  }

  /** The weights of one head, (S, T), and which cells are hidden: a function of row and column. */
  async head(pass, at, head) {
    const { path } = pass.attentions.find(one => one.at === at),
      mask = pass.tensors.find(one => one.name === `${path}.mask`);
    const [weights, hidden] = await this.tensors(pass, [
      { name: `${path}.weights`, index: [0, head] },
      ...(mask ? [{ name: mask.name }] : []),
    ]);
    return { ...weights, hidden: hiddenBy(hidden), may: hidden };
  }
}

/** From a mask of two or four dimensions, whether a cell may not be seen. */
export function hiddenBy(mask) {
  if (!mask) return () => false;
  const [rows, columns] = mask.shape.slice(-2);
  return (row, column) => !mask.data[(rows === 1 ? 0 : row) * columns + (columns === 1 ? 0 : column)];
}

/** What stands along the sides of an attention: rows (who looks), columns (who is looked at), and what is chosen. */
export function sides(pass, state) {
  const cross = state.at.endsWith(".cross"),
    encoder = state.at.startsWith("encoder");
  if (encoder)
    return {
      kind: "encoder",
      rows: pass.source,
      columns: pass.source,
      row: state.src,
      column: state.to,
      pick: (row, column) => pickSource(pass, row, { to: column }),
    };
  const first = pass.kind === "decoder" ? pass.prompt - 1 : 0,
    row = state.step + first;
  if (cross)
    return {
      kind: "cross",
      rows: pass.predicted,
      read: pass.read,
      columns: pass.source,
      row,
      column: state.src,
      pick: (row, column) => ({ step: row - first, src: column }),
    };
  return {
    kind: "self",
    rows: pass.predicted,
    read: pass.read,
    columns: pass.read,
    row,
    column: state.back,
    pick: (row, column) => ({ step: row - first, back: column }),
  };
}

/** A source token; where a model only reads, it is also a step, if it was asked for. */
export function pickSource(pass, place, more = {}) {
  const step = pass.kind === "encoder" ? pass.rows.indexOf(place) : -1;
  return { src: place, ...more, ...(step >= 0 ? { step } : {}) };
}

export const titleOf = at => {
  const [stack, layer, kind] = at.split(".");
  const name =
    kind === "cross"
      ? "Cross-attention"
      : stack === "encoder"
        ? "Encoder self-attention"
        : "Decoder masked self-attention";
  return { name, layer: Number(layer), kind: kind === "cross" ? "cross" : stack };
};

/** An edit in words. */
export function editNames(state, model, pass) {
  const named = [];
  for (const [step, token] of state.force)
    named.push({
      text: `step ${step + 1} forced to ${pass?.writing?.ids[step] === token ? pass.writing.tokens[step].text : `id ${token}`}`,
      without: { force: state.force.filter(pair => pair[0] !== step) },
    });
  for (const at of state.off)
    named.push({ text: `${at} silenced`, without: { off: state.off.filter(one => one !== at) } });
  for (const id of state.sw)
    named.push({
      text: `off: ${model.switches.find(one => one.id === id)?.name ?? id}`,
      without: { sw: state.sw.filter(one => one !== id) },
    });
  return named;
}
