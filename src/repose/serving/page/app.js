/** The page: translates text as you type. */

import { Refusal, get, post, sentenceOf, useKey } from "./api.js";
import { filesTab } from "./files.js";
import { Why } from "./why.js";
import { Translation, explainedWords, shade, told } from "./words.js";

const AUTO = "auto";
const ALTERNATIVES = 3;
const RETRIES = 5;
const LONGEST_WAIT = 60; // seconds
const AWAY_WAIT = 5; // seconds, at first, if the server cannot be reached

const at = (id) => document.getElementById(id);
const text = at("text");
const [source, target] = [at("source"), at("target")];
const number = new Intl.NumberFormat("en");

let settings = null;
let languages = [];
let models = [];
let running = null;
let asking = null; // the request for all heads
let away = false; // whether the server could not be reached
let timer = 0;
let shown = { text: "", translation: "", detected: undefined };

const translation = new Translation(at("translation"), (word, written) => {
  const seen = shown.text === text.value ? word : null; // offsets belong to the text that was translated
  shade(at("shades"), text.value, seen);
  at("word").textContent = told(seen, written, text.value);
});
const why = new Why({ heads: at("heads"), map: at("map"), sentence: at("why-sentence") });

// Helpers

function wanted() {
  return { alternatives: Math.min(ALTERNATIVES, settings.alternativesLimit) };
}

function length(string) {
  return Array.from(string).length;
}

function sum(numbers) {
  return numbers.length ? numbers.reduce((all, one) => all + one, 0) : undefined;
}

function say(id, sentence) {
  at(id).textContent = sentence;
  at(id).hidden = !sentence;
}

/** Announce to screen readers, in the language of the translation or of the page. */
function announce(sentence, language = "en") {
  at("status").lang = language;
  at("status").textContent = sentence;
}

function select(tab) {
  for (const name of ["text", "file"]) {
    const here = name === tab;
    at(`tab-${name}`).setAttribute("aria-selected", String(here));
    at(`tab-${name}`).tabIndex = here ? 0 : -1;
    at(`panel-${name}`).hidden = !here;
  }
  if (tab === "text") fit(); // hidden elements have no height
}

function startTabs() {
  for (const [name, other] of [["text", "file"], ["file", "text"]]) {
    at(`tab-${name}`).addEventListener("click", () => select(name));
    at(`tab-${name}`).addEventListener("keydown", (event) => {
      if (!["ArrowLeft", "ArrowRight"].includes(event.key) || at(`tab-${other}`).hidden) return;
      select(other);
      at(`tab-${other}`).focus();
    });
  }
}

// Languages and models

function options(codes) {
  return codes.map((code) => new Option(languages.find((one) => one.code === code)?.name ?? code, code));
}

function targetsOf(code) {
  const from = languages.filter((one) => code === AUTO || one.code === code);
  return [...new Set(from.flatMap(({ targets }) => targets))];
}

function fillTargets(wanted) {
  const codes = targetsOf(source.value);
  target.replaceChildren(...options(codes));
  target.value = codes.includes(wanted) ? wanted : codes[0];
}

function fillLanguages(from, into) {
  const sources = languages.filter(({ targets }) => targets.length).map(({ code }) => code);
  source.replaceChildren(new Option("Detect language", AUTO), ...options(sources));
  source.value = from === AUTO || sources.includes(from) ? from : sources[0];
  fillTargets(into);
}

/** Fetch the server's limits, models and languages again; return whether they changed. */
async function renew() {
  let found;
  try {
    found = await Promise.all(["frontend/settings", "languages", "models"].map(get));
  } catch {
    return false; // the next translation will report it
  }
  if (JSON.stringify(found) === JSON.stringify([settings, languages, models])) return false;
  [settings, languages, models] = found;
  const before = [source.value, target.value];
  fillLanguages(...before);
  tellModel();
  if (before.join() !== [source.value, target.value].join()) changed();
  return true;
}

function startLanguages() {
  fillLanguages(settings.language.source.code, settings.language.target.code);
  for (const one of [source, target]) one.addEventListener("change", leaveAddress);
  source.addEventListener("change", () => changed(() => fillTargets(target.value)));
  target.addEventListener("change", () => changed());
  at("swap").addEventListener("click", swap);
}

function changed(how = () => {}) {
  how();
  text.lang = source.value === AUTO ? "" : source.value;
  tellModel();
  soon(0);
}

function swap() {
  const [from, into] = [source.value === AUTO ? shown.detected : source.value, target.value];
  if (!from) return say("note", "Choose the language to translate from first.");
  if (!targetsOf(into).includes(from)) return say("note", "This server has no model for the other direction.");
  leaveAddress();
  if (shown.translation && shown.text === text.value) text.value = shown.translation;
  source.value = into;
  changed(() => fillTargets(from));
  typed();
}

function score({ scores }) {
  const decoded = Object.entries(scores?.decoded ?? {});
  const [how, figures] = decoded.find(([name]) => name.startsWith("beam")) ?? decoded[0] ?? [];
  if (typeof figures?.bleu?.value !== "number") return "not evaluated: no score is known";
  const decoder = how.replace(/^beam(\d+)$/, "beam $1");
  return `BLEU ${figures.bleu.value.toFixed(1)} on ${number.format(scores.num_sentences)} ${scores.split} sentences (${decoder})`;
}

function tellModel() {
  const from = source.value === AUTO ? shown.detected : source.value;
  const model = models.find((one) => one.source === from && one.target === target.value) ?? (from ? null : models[0]);
  const line = at("model");
  line.replaceChildren();
  if (!model) return;
  const size = model.parameters ? `${(model.parameters / 1e6).toFixed(1)} M parameters` : null;
  const parts = [`Model: ${model.name}`, model.preset, size, score(model)].filter(Boolean);
  line.append(parts.join(" · "));
  for (const sentence of [model.scores?.warning, ...model.warnings].filter(Boolean)) {
    const warning = document.createElement("strong");
    warning.textContent = ` ${sentence}`;
    line.append(warning);
  }
}

// Translating

function tooLong() {
  return settings.charLimit > 0 && length(text.value) > settings.charLimit;
}

function fit() {
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight}px`;
}

function typed() {
  const [count, limit] = [length(text.value), settings.charLimit];
  shade(at("shades"), text.value, null);
  fit(); // both panes are as high as the higher one
  at("count").textContent = limit > 0 ? `${number.format(count)} / ${number.format(limit)}` : number.format(count);
  at("count").classList.toggle("over", tooLong());
  at("clear").disabled = !text.value;
}

function soon(milliseconds = settings.frontendTimeout) {
  clearTimeout(timer);
  running?.abort();
  asking?.abort();
  say("note", "");
  stale(true);
  timer = setTimeout(translate, milliseconds);
}

/** Whether the translation shown belongs to an earlier text, so that there is nothing to explain. */
function stale(is) {
  at("translation").setAttribute("aria-busy", String(is));
  if (is) hideWhy();
  for (const id of ["copy", "share"]) at(id).disabled = is || !shown.translation;
}

function hideWhy() {
  asking?.abort();
  at("why").open = false;
  at("why").hidden = true;
}

function clear() {
  translation.show("");
  shown = { text: "", translation: "", detected: shown.detected };
  say("warning", "");
  say("problem", "");
  for (const id of ["others", "legend"]) at(id).hidden = true;
  hideWhy();
  stale(false);
  at("detected").textContent = "";
}

async function ask(what, signal) {
  if (length(what.q) <= settings.explainLimit) return post("explain", { ...what, ...wanted(), heads: false }, signal);
  const found = await post("translate", { ...what, ...wanted() }, signal);
  return { ...found, sentences: [], alternatives: (found.alternatives ?? []).map((one) => ({ text: one })) };
}

async function translate(tries = 0) {
  const q = text.value;
  away = false;
  if (!q.trim()) return clear();
  if (tooLong()) {
    clear();
    const file = at("tab-file").hidden ? "" : ", or translate it as a file";
    say("problem", `This server translates ${number.format(settings.charLimit)} characters at once: shorten the text${file}.`);
    return;
  }
  const here = new AbortController();
  running = here;
  let found;
  try {
    found = await ask({ q, source: source.value, target: target.value }, here.signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    away = !(error instanceof Refusal);
    const seconds = away ? Math.min(AWAY_WAIT * 2 ** tries, LONGEST_WAIT) : error.seconds;
    if (away || (seconds !== null && seconds <= LONGEST_WAIT && tries < RETRIES)) {
      say("problem", `${sentenceOf(error).replace(/\.$/, "")}: trying again in ${seconds} s`);
      timer = setTimeout(() => translate(tries + 1), 1000 * seconds);
      return;
    }
    clear();
    say("problem", sentenceOf(error));
    if (await renew()) soon(0); // the server may have lost the model or changed its limits
    return;
  }
  show(q, found);
  if (tries) renew(); // the server may have been restarted
}

function show(q, found) {
  hideWhy();
  say("problem", "");
  say("warning", (found.warnings ?? []).join("; "));
  const seen = found.detectedLanguage?.confidence > 0 ? found.detectedLanguage : undefined; // 0 for text without words
  shown = { text: q, translation: found.translatedText, detected: seen?.language };
  if (found.sentences.length) shown.explained = found.translatedText;
  at("translation").lang = target.value;
  translation.show(found.translatedText, explainedWords(found.sentences));
  at("legend").hidden = !translation.unsure;
  announce(found.translatedText, target.value);
  stale(false);
  at("why").hidden = shown.explained === undefined;
  at("detected").textContent = seen ? detectedLine(seen) : "";
  alternatives(found.alternatives, sum(found.sentences.map(({ score: one }) => one)));
  tellModel();
}

function detectedLine({ language, confidence }) {
  const name = languages.find(({ code }) => code === language)?.name ?? language;
  return `Detected: ${name} (${Math.round(confidence)} %)`;
}

function figureOf(score) {
  return typeof score === "number" ? score.toFixed(1).replace("-", "−") : "";
}

function alternatives(found, own) {
  at("own-score").textContent = typeof own === "number" ? `The translation above has ${figureOf(own)}.` : "";
  at("others").hidden = !found.length;
  at("others").querySelector("p").hidden = !found.some(({ score: one }) => typeof one === "number");
  const items = found.map(({ text: other, score: one }) => {
    const [item, button, words, figure] = ["li", "button", "span", "span"].map((name) => document.createElement(name));
    button.type = "button";
    button.append(words, figure);
    words.textContent = other;
    words.dir = "auto";
    words.lang = target.value;
    button.title = "Take this one";
    figure.className = "score";
    figure.textContent = figureOf(one);
    button.addEventListener("click", () => take(button.firstChild.textContent, button)); // the alternative it shows when clicked
    item.append(button);
    return item;
  });
  at("alternatives").replaceChildren(...items);
}

function take(other, button) {
  const before = shown.translation;
  shown.translation = other;
  translation.show(other);
  at("legend").hidden = true;
  at("why").open = false;
  const waits = at("translation").getAttribute("aria-busy") === "true"; // for another text's translation
  at("why").hidden = waits || other !== shown.explained; // only the best translation is explained
  button.firstChild.textContent = before;
  button.lastChild.textContent = "";
  at("own-score").textContent = "";
  announce(other, target.value);
}

async function openWhy() {
  asking?.abort();
  if (!at("why").open || !shown.text) return;
  const here = shown;
  why.clear("…");
  try {
    const what = { q: here.text, source: source.value, target: target.value, ...wanted() };
    asking = new AbortController();
    const found = await post("explain", what, asking.signal);
    if (here === shown) why.show(found.sentences);
  } catch (error) {
    if (error.name !== "AbortError" && here === shown) why.clear(sentenceOf(error));
  }
}

// Copying and sharing

async function copy(string, done) {
  try {
    await navigator.clipboard.writeText(string);
    announce(done);
    return true;
  } catch {
    return false;
  }
}

async function share() {
  const what = new URLSearchParams({ source: source.value, target: target.value, q: shown.text });
  history.replaceState(null, "", `#${what}`); // after the #, which browsers do not send to servers
  const copied = await copy(location.href, "The address is copied");
  flash("share", copied ? "Address copied" : "Now in the address");
}

function flash(id, sentence) {
  const before = at(id).dataset.name ?? at(id).textContent;
  at(id).dataset.name = before;
  at(id).textContent = sentence;
  setTimeout(() => { at(id).textContent = before; }, 1500);
}

/** Remove a shared text from the address once the text has changed. */
function leaveAddress() {
  if (location.hash || location.search) history.replaceState(null, "", location.pathname);
}

function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1) || location.search);
  if ([...source.options].some(({ value }) => value === asked.get("source"))) source.value = asked.get("source");
  fillTargets(asked.get("target") ?? target.value);
  if (asked.get("q")) text.value = asked.get("q");
}

// Start

function startText() {
  text.addEventListener("input", () => {
    leaveAddress();
    typed();
    soon();
  });
  at("clear").addEventListener("click", () => {
    text.value = "";
    leaveAddress();
    typed();
    soon(0);
    text.focus();
  });
  at("copy").addEventListener("click", async () => {
    if (await copy(shown.translation, "Copied")) flash("copy", "Copied");
    else getSelection().selectAllChildren(at("translation"));
  });
  at("share").addEventListener("click", share);
  at("why").addEventListener("toggle", openWhy);
  addEventListener("resize", fit);
  const again = () => { if (away) soon(0); };
  addEventListener("online", again);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    again();
    renew();
  });
}

function startFiles() {
  const formats = settings.supportedFilesFormat ?? [];
  at("tab-file").hidden = !settings.filesTranslation || !formats.length;
  at("file-formats").textContent = formats.join(" ");
  const parts = { form: at("file-form"), input: at("file"), button: at("file-send"), stop: at("file-stop") };
  filesTab({ ...parts, result: at("file-result"), formats }, () => ({ source: source.value, target: target.value }));
}

async function start() {
  startTabs();
  try {
    [settings, languages, models] = await Promise.all(["frontend/settings", "languages", "models"].map(get));
  } catch (error) {
    stale(false);
    say("problem", `${sentenceOf(error).replace(/\.$/, "")}: load the page again in a while.`);
    return;
  }
  at("key-box").hidden = !settings.apiKeys;
  at("key-box").open = settings.keyRequired;
  at("key-form").addEventListener("submit", (event) => event.preventDefault());
  at("key").addEventListener("change", () => {
    useKey(at("key").value);
    soon(0);
  });
  startLanguages();
  startText();
  startFiles();
  const begin = () => {
    readAddress();
    typed();
    changed();
  };
  addEventListener("hashchange", () => {
    // A shared address was opened in this tab; anchors within the page do not count.
    if (location.hash.includes("=")) begin();
  });
  begin();
  if (document.activeElement === document.body) text.focus();
}

start();
