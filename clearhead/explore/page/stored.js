// One pass, stored in the file: for models too big to carry. It can be looked at from every side, but not changed.
import { pooled } from "./measured.js";
import { Refusal } from "./server.js";

export class Stored {
  alive = false;
  served = false;

  /** `carried`: { model, training, stored: { pass, worth, guesses }, first }; `tensors`: those of the pass. */
  constructor(carried, tensors) {
    this.carried = carried;
    this.first = carried.first; // the text to begin with
    this.begin = carried.begin; // and the rest of the state, as in an address
    this.kept = new Map(tensors.map(tensor => [tensor.name, tensor]));
  }

  async model() {
    return this.carried.model;
  }
  async training(after = 0) {
    const { metrics, checkpoints } = this.carried.training;
    return { metrics: metrics.filter(row => row.step > after), checkpoints };
  }
  async pass(request) {
    const { edits = {}, text } = request,
      changed = [...(edits.force ?? []), ...(edits.off ?? []), ...(edits.even ?? []), ...(edits.sw ?? [])].length;
    if (changed || text !== this.carried.stored.pass.text)
      throw new Refusal(
        "this file holds one pass of a model too big to carry: open the run with `clearhead explore`",
        400,
      );
    return this.carried.stored.pass;
  }
  async worth() {
    return this.carried.stored.worth;
  }
  async guesses() {
    return this.carried.stored.guesses;
  }
  async tensors(id, wanted) {
    return wanted.map(({ name, index = [], pool = null }) => {
      const whole = this.kept.get(name);
      if (!whole) throw new Refusal(`${name} is not in this file`, 400);
      let shape = whole.shape.slice(index.length),
        from = 0;
      index.forEach((i, at) => {
        from += i * whole.shape.slice(at + 1).reduce((a, b) => a * b, 1);
      });
      let data = whole.data.subarray(from, from + shape.reduce((a, b) => a * b, 1));
      if (pool !== null && shape.length >= 2) ({ shape, data } = pooled(shape, data, pool));
      return {
        name,
        letters: whole.letters.split(" ").slice(index.length).join(" "),
        shape,
        index,
        dtype: whole.dtype,
        data,
      };
    });
  }
}
