"use strict";
// Episode sources, and chats rebuilt from their changes.

const boot = JSON.parse(document.getElementById("boot").textContent);

// Decoded episodes to keep: the open one, one to compare, and the most recent ones.
const CACHED = 6;

/** Episodes embedded in this file. Each is decompressed when opened. */
class FileSource {
  constructor() {
    this.rows = boot.rows;
    this.complete = true;
  }

  async load(number) {
    const packed = document.getElementById(`episode-${number}`).textContent;
    const bytes = Uint8Array.from(atob(packed), (sign) => sign.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
  }

  async search(text) {
    const matches = [];
    for (const row of this.rows) {
      const view = await this.load(row.number);
      if (!view.problem && turnsWith(view, text, true).length) matches.push(row.number);
    }
    return matches;
  }
}

/** Episodes from a server, polled for new ones while the page is visible. */
class LiveSource {
  constructor() {
    this.rows = [];
    this.generation = 0;
    this.complete = false;
  }

  async ask(path) {
    const answer = await fetch(path);
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  }

  load(number) {
    return this.ask(`episodes/${number}`);
  }

  search(text) {
    return this.ask(`search?text=${encodeURIComponent(text)}`);
  }

  /** Add new rows and return whether the list changed. */
  async refresh() {
    const news = await this.ask(`rows?from=${this.rows.length}&generation=${this.generation}`);
    const replaced = news.generation !== this.generation;
    if (replaced) {
      this.rows = [];
      cache.clear();
    }
    this.generation = news.generation;
    this.rows = this.rows.concat(news.rows);
    this.complete = !news.more;
    return replaced || news.rows.length > 0;
  }
}

const source = boot.live ? new LiveSource() : new FileSource();
const cache = new Map();

async function loadEpisode(number) {
  if (!cache.has(number)) {
    if (cache.size >= CACHED) cache.delete(cache.keys().next().value);
    cache.set(number, source.load(number));
  }
  try {
    return await cache.get(number);
  } catch (error) {
    cache.delete(number);
    return { problem: String(error.message || error) };
  }
}

/** The chat at a turn: entries {message, mark, isNew} in order, including dropped messages. */
function chatAt(view, number) {
  const turn = view.turns[number] || view.end;
  let entries = [];
  let before = 0;
  let changed = new Set();
  for (let k = 0; k <= Math.min(number, view.turns.length); k++) {
    const step = view.turns[k] || view.end;
    if (step.agent !== turn.agent) continue;
    const changes = step.changes;
    if (changes.clear) entries = [];
    before = entries.length;
    changed = new Set((changes.set || []).map(([place]) => place));
    for (const [place, message, mark] of changes.set || []) entries[place] = [message, mark];
    for (const entry of changes.add) entries.push(entry);
  }
  return entries.map(([message, mark], place) => ({
    message: view.messages[message], mark, isNew: place >= before || changed.has(place),
  }));
}

function callText(call) {
  const values = Object.entries(call.arguments).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  return `${call.name}(${values.join(", ")})`;
}

/** The reply in one line. */
function replyLine(reply) {
  if (reply.summary) return `summary: ${reply.text}`;
  if (reply.calls.length) return reply.calls.map(callText).join("; ");
  return reply.text || reply.raw || "(empty)";
}

function messageTexts(message) {
  const calls = (message.calls || []).map(callText);
  return [...message.parts.map(([, text]) => text), message.thinking || "", ...calls];
}

/** The turns whose reply or new messages contain the text. */
function turnsWith(view, text, once = false) {
  const needle = text.toLowerCase();
  const has = (value) => value.toLowerCase().includes(needle);
  const places = [];
  const steps = [...view.turns, view.end];
  for (let k = 0; k < steps.length && !(once && places.length); k++) {
    const step = steps[k];
    const shown = [...step.changes.add.map(([m]) => m), ...(step.changes.set || []).map(([, m]) => m)];
    const inReply = step.reply && has(step.reply.raw);
    if (inReply || shown.some((m) => messageTexts(view.messages[m]).some(has))) places.push(k);
  }
  return places;
}

/** The first turn whose calls or reply differ between two episodes, or -1. */
function firstDifference(one, two) {
  const act = (turn) => turn && JSON.stringify(turn.reply.calls.length ? turn.reply.calls : turn.reply.raw);
  const length = Math.max(one.turns.length, two.turns.length);
  for (let k = 0; k < length; k++) {
    if (act(one.turns[k]) !== act(two.turns[k])) return k;
  }
  return -1;
}
