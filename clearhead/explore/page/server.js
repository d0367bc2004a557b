// Where the tensors come from when the page is served: `clearhead explore RUN` on this machine.
import { unpack } from "./wire.js";

/** A request that was refused: the one line that says why, and the HTTP status (0: the server is gone). */
export class Refusal extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export class Served {
  /** `alive`: whether texts can be read; `served`: whether a server answers. */
  alive = true;
  served = true;

  constructor(token) {
    this.token = token;
  }

  async model() {
    const found = await this.get("/api/model");
    this.run = found.path;
    return found;
  }
  training(after = 0) {
    return this.get(`/api/training?after=${after}`);
  }
  pass(request) {
    return this.post("/api/pass", request);
  }
  worth(id) {
    return this.post("/api/worth", { id });
  }
  guesses(id) {
    return this.post("/api/guesses", { id });
  }
  async tensors(id, wanted, dtype = "float32") {
    return unpack(await this.post("/api/tensors", { id, wanted, dtype }, true));
  }

  get(path) {
    return this.ask(path, {});
  }
  post(path, body, binary = false) {
    const headers = { "content-type": "application/json", "x-clearhead-token": this.token };
    return this.ask(path, { method: "POST", headers, body: JSON.stringify(body) }, binary);
  }

  async ask(path, options, binary = false) {
    let answer;
    try {
      answer = await fetch(path, { ...options, redirect: "error" });
    } catch {
      throw new Refusal(`the server is gone; start it again: clearhead explore ${this.run ?? "RUN"}`, 0);
    }
    if (!answer.ok) {
      const said = await answer.json().catch(() => ({}));
      throw new Refusal(said.error ?? `status ${answer.status}`, answer.status);
    }
    return binary ? answer.arrayBuffer() : answer.json();
  }
}
