/** Requests to the server that this page came from. */

let key = "";

export function useKey(text) {
  key = text.trim();
}

/** A failed request: `message` is the server's sentence, `seconds` says when to ask again, if known. */
export class Refusal extends Error {
  constructor(message, seconds) {
    super(message);
    this.seconds = seconds;
  }
}

async function answer(response) {
  let body = null;
  try {
    body = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (response.ok && body !== null) return body;
  const sentence = body && typeof body.error === "string" ? body.error : `The server answered ${response.status}`;
  const wait = Number.parseFloat(response.headers.get("Retry-After") ?? "");
  throw new Refusal(sentence, Number.isFinite(wait) ? wait : null);
}

/** The message to show for a failed request: the server's sentence, or that the server cannot be reached. */
export function sentenceOf(error) {
  return error instanceof Refusal ? error.message : "The server cannot be reached.";
}

export async function get(path) {
  return answer(await fetch(path));
}

export async function post(path, what, signal) {
  const body = JSON.stringify(key ? { ...what, api_key: key } : what);
  return answer(await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body, signal }));
}

export async function send(path, what, signal) {
  const body = new FormData();
  for (const [name, value] of Object.entries(what)) body.append(name, value);
  if (key) body.append("api_key", key);
  return answer(await fetch(path, { method: "POST", body, signal }));
}

export async function fetched(path, signal) {
  const response = await fetch(path, { signal });
  return response.ok ? response.blob() : answer(response);
}
