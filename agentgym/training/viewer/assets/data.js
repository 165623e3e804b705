"use strict";
// Episode sources, and episodes: chats rebuilt from their changes.

const boot = JSON.parse(document.getElementById("boot").textContent);

// Decoded episodes to keep: the open one, one to compare, and the most recent ones.
const CACHED = 6;

// Episodes to request at a time.
const BATCH = 64;

/** Rows with their names in addresses. */
class Rowset {
  constructor() {
    this.rows = [];
    this.byId = new Map();
  }

  clear() {
    this.rows = [];
    this.byId.clear();
  }

  add(rows) {
    this.rows = this.rows.concat(rows);
    for (const row of rows) this.byId.set(episodeId(row), row);
  }
}

/** Episodes embedded in this file, in compressed elements of several episodes each. */
class FileSource extends Rowset {
  constructor() {
    super();
    this.add(boot.rows);
    this.complete = true;
    this.packs = [...document.querySelectorAll("script[type='application/gzip']")];
  }

  /** The JSON lines of a pack. */
  async lines(pack) {
    const stream = new Blob([fromBase64(pack.textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
    return (await new Response(stream).text()).split("\n");
  }

  async load(number) {
    const pack = this.packs.findLast((each) => Number(each.id) <= number);
    return JSON.parse((await this.lines(pack))[number - Number(pack.id)]);
  }

  files() {
    return boot.files;
  }

  async search(text) {
    const words = wordsOf(text);
    const matches = [];
    for (const pack of this.packs) {
      const lines = await this.lines(pack);
      lines.forEach((line, k) => {
        const lower = line.toLowerCase();
        if (!words.every((word) => lower.includes(word))) return;
        const view = JSON.parse(line);
        if (!view.problem && turnsWith(view, text, true).length) matches.push(Number(pack.id) + k);
      });
    }
    return matches;
  }

  /** The episodes as this page shows them, one JSON line each. */
  async raw(rows) {
    const numbers = new Set(rows.map((row) => row.number));
    const parts = [];
    for (const pack of this.packs) {
      const first = Number(pack.id);
      parts.push(...(await this.lines(pack)).filter((line, k) => numbers.has(first + k)).map((line) => `${line}\n`));
    }
    return parts;
  }
}

/** Episodes from a server, polled for new ones while the page is visible. */
class LiveSource extends Rowset {
  constructor() {
    super();
    this.generation = 0;
    this.complete = false;
  }

  async fetch(path) {
    const answer = await fetch(path);
    if (!answer.ok) throw new Error(await answer.text());
    return answer;
  }

  async ask(path) {
    return (await this.fetch(path)).json();
  }

  load(number) {
    return this.ask(`episodes/${number}`);
  }

  files() {
    return this.ask("files");
  }

  search(text, from) {
    return this.ask(`search?from=${from}&text=${encodeURIComponent(text)}`);
  }

  /** The lines of the log, unchanged. */
  async raw(rows) {
    const parts = [];
    for (let k = 0; k < rows.length; k += BATCH) {
      const numbers = rows.slice(k, k + BATCH).map((row) => row.number);
      parts.push(await (await this.fetch(`raw?numbers=${numbers.join(",")}`)).blob());
    }
    return parts;
  }

  /** Add new rows and return whether the list changed. */
  async refresh() {
    const news = await this.ask(`rows?from=${this.rows.length}&generation=${this.generation}`);
    const replaced = news.generation !== this.generation;
    if (replaced) {
      this.clear();
      cache.clear();
    }
    const changed = replaced || news.rows.length > 0 || this.complete === news.more;
    this.generation = news.generation;
    this.add(news.rows);
    this.complete = !news.more;
    return changed;
  }
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const signs = atob(text);
  const bytes = new Uint8Array(signs.length);
  for (let k = 0; k < signs.length; k++) bytes[k] = signs.charCodeAt(k);
  return bytes;
}

/** The words in Latin letters and digits, which JSON text contains as they are. */
function wordsOf(text) {
  return text.toLowerCase().match(/[a-z0-9_]+/g) || [];
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

/** The turns whose calls or reply differ between episodes. */
function differences(views) {
  const act = (turn) => turn && JSON.stringify(turn.reply.calls.length ? turn.reply.calls : turn.reply.raw);
  const length = Math.max(...views.map((view) => view.turns.length));
  const places = [];
  for (let k = 0; k < length; k++) {
    const [first, ...others] = views.map((view) => act(view.turns[k]));
    if (others.some((other) => other !== first)) places.push(k);
  }
  return places;
}

/** Whether a turn went wrong: a step that is not optimal, an error of a call, or a fault. */
function isError(turn) {
  const { optimal, valid, detail = {} } = turn.info || {};
  return optimal === false || valid === false || Boolean(detail.errors || detail.invalid || (detail.faults || []).length);
}
