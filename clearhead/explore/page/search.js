// Free writing in the page: greedy, sampling, beam. The same choices as clearhead/explore/writing.py and beam_tree.py.
import { newRun } from "./forward.js";
import { Refusal } from "./server.js";

export const TOP = 12;
const PRUNED = 2;

/** log softmax of one row. */
export function logSoftmax(row) {
  let top = -Infinity,
    total = 0;
  for (const value of row) top = Math.max(top, value);
  for (const value of row) total += Math.exp(value - top);
  const minus = top + Math.log(total);
  return Float64Array.from(row, value => value - minus);
}

/** The `count` highest places of an array, best first. */
export function highest(values, count) {
  const found = [];
  for (let i = 0; i < values.length; i++) {
    if (found.length === count && !(values[i] > values[found[count - 1]])) continue;
    let at = found.length;
    while (at > 0 && values[i] > values[found[at - 1]]) at--;
    found.splice(at, 0, i);
    if (found.length > count) found.pop();
  }
  return found;
}

/** The likeliest tokens of a step: [[id, probability]]. */
export const likeliest = logProbs => highest(logProbs, TOP).map(id => [id, Math.exp(logProbs[id])]);

/** A number from 0 to 1 for a step, the same as in Python. */
export function draw(seed, step) {
  let state = (Math.imul(seed >>> 0, 0x9e3779b1) + Math.imul(step, 0x85ebca6b) + 0x6d2b79f5) >>> 0;
  for (const [shift, factor] of [
    [16, 0x21f0aaad],
    [15, 0x735a2d97],
  ])
    state = Math.imul(state ^ (state >>> shift), factor) >>> 0;
  return ((state ^ (state >>> 15)) >>> 0) / 2 ** 32;
}

/** One row of decoding: log-probabilities of the next token, with edits on the way. */
export class Steps {
  constructor(forward, reading, edit, memory) {
    this.forward = forward;
    this.edit = edit;
    this.memory = memory;
    this.tokens = [];
    this.cached = !Object.keys(edit).some(name => name.endsWith(".mask"));
    this.cache = this.cached ? { length: 0 } : null;
  }

  copy() {
    const made = Object.assign(Object.create(Steps.prototype), this);
    made.tokens = [...this.tokens];
    made.cache = this.cache && { ...this.cache }; // its tensors are replaced when they grow, never written into
    return made;
  }

  read(ids) {
    this.tokens.push(...ids);
    const run = newRun(this.edit, false),
      given = this.cached ? ids : this.tokens;
    const hidden = this.forward.states(run, "decoder", given, this.memory, this.cache),
      width = this.forward.width;
    const last = { shape: [1, 1, width], data: hidden.data.slice(-width) };
    return logSoftmax(this.forward.head(run, last).data);
  }
}

/** Greedy, or by chance: { ids, logProbs, top, finished, forced }. `allowed` are the settings of the run. */
export function write(steps, prompt, { limit, end, forbidden, vocabulary }, search, force) {
  const forced = new Map(force);
  for (const [step, token] of forced)
    if (!(step >= 0 && step < limit && token >= 0 && token < vocabulary))
      throw new Refusal(
        `cannot force token ${token} at step ${step}: steps go from 0 to ${limit - 1}, tokens to ${vocabulary - 1}`,
        400,
      );
  const ids = [],
    logProbs = [],
    top = [];
  let seen = steps.read(prompt);
  for (;;) {
    const step = ids.length,
      scores = seen.slice();
    for (const token of forbidden) scores[token] = -Infinity;
    const token = forced.has(step) ? forced.get(step) : choose(scores, search, step);
    ids.push(token);
    logProbs.push(seen[token]);
    top.push(likeliest(seen));
    if (token === end || ids.length >= limit) break;
    seen = steps.read([token]);
  }
  return {
    ids,
    logProbs,
    top,
    finished: ids.at(-1) === end,
    forced: [...forced.keys()].filter(step => step < ids.length).sort((a, b) => a - b),
  };
}

function choose(scores, search, step) {
  if (search.kind !== "sample" || search.temperature === 0) return highest(scores, 1)[0];
  const wide = scores.map(value => value / search.temperature);
  const order = Array.from(wide.keys()).sort((a, b) => wide[b] - wide[a]); // stable, as Python's
  const kept = search.top_k > 0 ? order.slice(0, search.top_k) : order;
  let chances = Array.from(logSoftmax(kept.map(id => wide[id])), Math.exp),
    before = 0;
  if (search.top_p < 1)
    chances = chances.map(p => {
      const stays = before < search.top_p;
      before += p;
      return stays ? p : 0;
    });
  if (search.min_p > 0) chances = chances.map(p => (p < search.min_p * chances[0] ? 0 : p));
  let reached = 0;
  const total = chances.reduce((a, b) => a + b, 0),
    drawn = draw(search.seed, step) * total;
  const most = chances.filter(p => p > 0).length - 1;
  const place = chances.findIndex(p => (reached += p) > drawn);
  return kept[Math.min(place < 0 ? most : place, most)];
}

/** Beam search: { written, columns }; a finished hypothesis keeps its slot unless `refill`. */
export function beamSearch(first, prompt, { limit, end, forbidden, length_form, refill }, size, alpha) {
  const penalty = length => (length_form === "gnmt" ? ((5 + length) / 6) ** alpha : length ** alpha);
  let live = [{ steps: first, seen: first.read(prompt), total: 0, node: 0, path: [] }],
    open = size;
  const columns = [],
    pool = [];
  for (let length = 1; ; length++) {
    const wanted = (refill ? 2 * size : size) + PRUNED,
      candidates = [];
    live.forEach((row, number) => {
      const scores = row.seen.slice();
      for (const token of forbidden) scores[token] = -Infinity;
      for (const token of highest(scores, wanted))
        if (scores[token] > -Infinity) candidates.push({ row, number, token, total: row.total + scores[token] });
    });
    candidates.sort((a, b) => b.total - a.total);
    const column = [],
      next = [];
    let ended = 0;
    candidates.slice(0, wanted).forEach(({ row, token, total }, place) => {
      const ends = token === end || length >= limit,
        chosen = place < open;
      const alive = !ends && (refill ? next.length < size && place < 2 * size : chosen),
        finished = ends && chosen;
      const entry = {
        token,
        logProb: row.seen[token],
        total,
        parent: row.node,
        kept: alive || finished,
        finished,
        score: finished ? total / penalty(length) : null,
      };
      const path = [...row.path, { token, logProb: entry.logProb, top: row.seen }];
      if (alive) next.push({ from: row, token, total, node: column.length, path });
      if (finished) {
        ended += 1;
        pool.push({ path, score: entry.score, finished: token === end });
      }
      column.push(entry);
    });
    columns.push(column);
    pool.sort((a, b) => b.score - a.score);
    if (!refill) open -= ended;
    const furthest = alpha > 0 ? limit : Math.min(length + 1, limit);
    if (!next.length || (pool.length && next[0].total / penalty(furthest) <= pool[0].score)) break;
    live = next.map(one => {
      const steps = one.from.steps.copy();
      return { steps, seen: steps.read([one.token]), total: one.total, node: one.node, path: one.path };
    });
  }
  const best = pool[0],
    ids = best.path.map(one => one.token);
  const written = {
    ids,
    logProbs: best.path.map(one => one.logProb),
    top: best.path.map(one => likeliest(one.top)),
    finished: best.finished,
    forced: [],
  };
  return { written, columns };
}

/** Every hypothesis that finished, best first. */
export function hypotheses(columns) {
  const found = [];
  columns.forEach((column, number) =>
    column.forEach((node, start) => {
      if (!node.finished) return;
      const ids = [];
      let place = start,
        logProb = 0;
      for (let back = number; back >= 0; back--) {
        const here = columns[back][place];
        ids.unshift(here.token);
        logProb += here.logProb;
        place = here.parent;
      }
      found.push({ ids, logProb, score: node.score });
    }),
  );
  return found.sort((a, b) => b.score - a.score);
}
