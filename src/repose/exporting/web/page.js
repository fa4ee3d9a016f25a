// The page: loads files next to it, or embedded ones in a single-file page, then translates as you type.

const within = document.getElementById("files"); // in a single-file page: the compressed files, as text
const base = document.baseURI;

async function read(name) {
  if (!within) {
    const answer = await fetch(new URL(name, base));
    if (!answer.ok) throw new Error(`${name} is not there (${answer.status})`);
    const size = Number(answer.headers.get("Content-Length"));
    say(`loading ${name}${size ? `, ${(size / 1e6).toFixed(1)} MB` : ""} …`);
    return new Uint8Array(await answer.arrayBuffer());
  }
  const packed = await fetch(`data:;base64,${within.querySelector(`[data-name="${name}"]`).textContent}`);
  const stream = packed.body.pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Import a module of the page or of the runtime. In a single-file page, imports become URLs of embedded modules. */
const addresses = {};
async function module(name, imports = []) {
  if (!within) return import(new URL(name, base));
  let text = new TextDecoder().decode(await read(name));
  for (const other of imports) text = text.replace(`"./${other}"`, `"${addresses[other]}"`);
  addresses[name] = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  return import(addresses[name]);
}

const element = (id) => document.getElementById(id);
const say = (text) => (element("status").textContent = text);

async function load() {
  const started = performance.now();
  const settings = JSON.parse(new TextDecoder().decode(await read("model.json")));
  const ort = await module("ort.js");
  const { Tokenizer } = await module("tokenizers.js");
  await module("search.js");
  ({ beginning, isTranslated, joined } = await module("parts.js"));
  const { Translator, TextTokenizer } = await module("translator.js", ["search.js", "parts.js"]);
  ort.env.wasm.numThreads = 1; // more threads need headers that file servers do not send
  ort.env.wasm.wasmBinary = await read("ort.wasm");
  const translator = await Translator.load({ ort, Tokenizer, settings, read });
  globalThis.repose = { translator, TextTokenizer, Tokenizer };
  show(translator);
  say(`ready after ${((performance.now() - started) / 1000).toFixed(1)} s; nothing that you type leaves this page`);
}

function show(translator) {
  const { settings } = translator;
  const beam = element("beam"), widths = [...new Set([1, 4, settings.decoding.beam_size])].sort((a, b) => a - b);
  for (const width of widths) beam.add(new Option(width === 1 ? "greedy, fastest" : `beam of ${width}`, width));
  beam.value = settings.decoding.beam_size;
  const tags = element("tag");
  for (const tag of settings.tag ? settings.tags : []) tags.add(new Option(tag, tag));
  tags.value = settings.tag ?? "";
  tags.parentElement.hidden = tags.options.length < 2;
  const direct = () => {
    const { src_lang, tgt_lang, title, source, target } = translator.direction(tags.value);
    element("src").lang = src_lang;
    element("tgt").lang = tgt_lang;
    document.title = document.querySelector("h1").textContent = title;
    for (const [id, name] of [["src", source], ["tgt", target]]) document.querySelector(`label[for=${id}]`).textContent = name;
  };
  tags.addEventListener("input", direct);
  direct();
  for (const control of [element("src"), beam, tags]) {
    control.disabled = false;
    control.addEventListener("input", () => schedule(translator));
  }
  element("src").focus();
}

let beginning, isTranslated, joined, timer, latest = 0;
function schedule(translator) {
  clearTimeout(timer);
  element("tgt").setAttribute("aria-busy", "true"); // until the whole text is translated
  if (element("src").value) say("translating …");
  const mine = ++latest; // stops translating an older text
  timer = setTimeout(() => translateAll(translator, mine).catch(complain), 250);
}

/** Translate line by line and part by part; stop as soon as there is a newer text. */
async function translateAll(translator, mine) {
  const started = performance.now();
  const options = { beamSize: Number(element("beam").value), to: element("tag").value || undefined };
  const lines = element("src").value.split("\n");
  const cut = new Set(); // which sentences, by their numbers
  let done = "", unseen = "", number = 0;
  for (const [index, line] of lines.entries()) {
    if (index > 0) done += "\n";
    let translated = "", given = "", previous;
    for (const part of translator.parts(line, options)) {
      const read = beginning(part.text, translator.fits(options));
      const made = isTranslated(read) ? await translator.translate(read, options) : part.text;
      if (isTranslated(read)) given += read;
      translated = joined(translated, made, part, previous);
      previous = part;
      number += part.begins ? 1 : 0;
      if (read.length < part.text.length) cut.add(number);
      await new Promise((next) => setTimeout(next)); // let the page handle what was typed meanwhile
      if (mine !== latest) return;
      element("tgt").textContent = done + translated;
      say("translating …");
    }
    done += translated;
    if (!unseen && translator.isUnseen(given))
      unseen = `; line ${index + 1} is in a script that this model's training hardly saw: expect nonsense`;
  }
  element("tgt").textContent = done;
  element("tgt").removeAttribute("aria-busy");
  const seconds = ((performance.now() - started) / 1000).toFixed(2);
  const tooLong = cut.size ? `; ${cut.size} of them longer than the model reads: the rest was cut off` : "";
  say(number === 0 ? "" : `${number} ${number === 1 ? "sentence" : "sentences"} in ${seconds} s${tooLong}${unseen}`);
}

function complain(error) {
  console.error(error);
  element("tgt").removeAttribute("aria-busy");
  say(`this does not work here (${error.message}); loading the page again may help`);
}

load().catch(complain);
