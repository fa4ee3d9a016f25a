/** The tab for files. */

import { fetched, send, sentenceOf } from "./api.js";

export function filesTab({ form, input, button, stop, result, formats }, languages) {
  let running = null;
  let made = "";

  const suffixOf = (name) => (/\.[^.]+$/.exec(name)?.[0] ?? "").toLowerCase();
  const isKnown = (file) => formats.includes(suffixOf(file.name));
  const allow = () => {
    const file = input.files[0];
    button.disabled = !file || !isKnown(file) || running !== null;
  };
  const chosen = () => {
    const file = input.files[0];
    allow();
    if (running) return; // keep the message about the previous file
    result.textContent = !file || isKnown(file) ? "" : `This server translates ${formats.join(", ")}.`;
  };

  input.accept = formats.join(",");
  input.addEventListener("change", chosen);
  for (const name of ["dragover", "dragleave", "drop"]) {
    form.addEventListener(name, (event) => {
      event.preventDefault();
      form.classList.toggle("over", name === "dragover");
    });
  }
  form.addEventListener("drop", (event) => {
    if (event.dataTransfer.files.length) input.files = event.dataTransfer.files;
    chosen();
  });
  stop.addEventListener("click", () => running?.abort());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const file = input.files[0];
    const asked = languages(); // the user may choose others before the answer comes
    running = new AbortController();
    allow();
    stop.hidden = false;
    result.textContent = `Translating ${file.name} …`;
    try {
      const found = await send("translate_file", { ...asked, file }, running.signal);
      const name = encodeURIComponent(found.translatedFileUrl.split("/").at(-1)); // the URL's host may be wrong behind a proxy
      const link = document.createElement("a");
      URL.revokeObjectURL(made);
      made = URL.createObjectURL(await fetched(`download_file/${name}`, running.signal));
      link.href = made;
      link.download = file.name.replace(/(\.[^.]+)?$/, `.${asked.target}$1`);
      link.textContent = `Download ${link.download}`;
      const warnings = (found.warnings ?? []).join("; ");
      result.replaceChildren("Done: ", link, warnings && ` (${warnings})`);
      link.focus();
    } catch (error) {
      result.textContent = error.name === "AbortError" ? "Stopped." : sentenceOf(error);
    } finally {
      running = null;
      stop.hidden = true;
      allow();
    }
  });
}
