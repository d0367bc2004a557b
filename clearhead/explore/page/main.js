import { openSource } from "./source.js";

const app = document.getElementById("app"), shown = document.createElement("pre");
app.append(shown);
const source = await openSource();
const model = await source.model();
const made = await source.pass({ text: source.first ?? model.examples[0] });
shown.textContent = `${made.text} → ${made.answer.map(token => token.text).join(" ")}`;
