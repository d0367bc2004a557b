// Chooses where the tensors come from; the views never need to know.
import { Alive } from "./alive.js";
import { Served } from "./server.js";
import { Stored } from "./stored.js";
import { fromBase64, unpack } from "./wire.js";

/** The source of this page: a server, or what the file itself carries. */
export async function openSource() {
  const carried = document.getElementById("clearhead-carried");
  if (!carried) return new Served(document.querySelector("meta[name=clearhead-token]").content);
  const tensors = unpack(fromBase64(document.getElementById("clearhead-tensors").textContent.trim()));
  const content = JSON.parse(carried.textContent);
  return content.stored ? new Stored(content, tensors) : new Alive(content, tensors);
}
