// Chooses where the tensors come from; the views never need to know.
import { Served } from "./server.js";

/** The source of this page: a server, or what the file itself carries. */
export async function openSource() {
  return new Served(document.querySelector("meta[name=clearhead-token]").content);
}
