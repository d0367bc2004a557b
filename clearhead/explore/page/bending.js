// What sampling makes of a step: the logits divided by the temperature, the likeliest k, then the likeliest that together
// reach p. Computed from all logits of the step, as clearhead/decoding/sample.py does.
import { sum } from "./numbers.js";

/** The chance of every token at a step, by its id; null where the logits are not kept. */
export async function bent({ state, work, model }, pass, step) {
  if (state.mode !== "sample" || !pass.writing || !pass.tensors.some(one => one.name === "output.logits")) return null;
  const [{ data }] = await work.tensors(pass, [{ name: "output.logits", index: [0, pass.rows[step]] }]);
  return chances(data, state, model.forbidden);
}

export function chances(logits, { temperature, top_k, top_p }, forbidden) {
  const scores = Float64Array.from(logits),
    made = new Float64Array(scores.length);
  for (const id of forbidden) scores[id] = -Infinity;
  const order = Array.from(scores.keys()).sort((a, b) => scores[b] - scores[a]),
    top = scores[order[0]];
  if (temperature === 0) {
    made[order[0]] = 1;
    return made;
  }
  const kept = order.slice(0, top_k || order.length),
    powers = kept.map(id => Math.exp((scores[id] - top) / temperature)),
    total = sum(powers);
  let reached = 0,
    left = 0;
  kept.forEach((id, i) => {
    if (reached < top_p) left += made[id] = powers[i] / total;
    reached += powers[i] / total;
  });
  return made.map(chance => chance / left);
}
