// The page: routing, the bar, one episode, keys and new episodes.

const ROW = 30;
// Milliseconds between polls for new episodes.
const POLL = 2000;
// Milliseconds after the last keystroke before a search starts.
const PAUSE = 250;

const bar = document.getElementById("bar");
const main = document.getElementById("main");
const help = document.getElementById("help");
// `search`: the numbers of the first `upTo` episodes that contain a text.
// `page`: the page shown, with its functions `draw` (on new episodes), `drawBar`, `move`, `enter` and `select`.
const state = { address: readAddress(location.hash), page: null, search: { text: "", upTo: 0, busy: false, matches: new Set() } };

document.title = `${boot.title} - agentgym`;

/** Open another address. */
function go(changes) {
  location.hash = writeAddress({ ...state.address, ...changes });
}

/** Change the address without a new entry in the browser's history. */
function replaceAddress(changes) {
  Object.assign(state.address, changes);
  history.replaceState(null, "", writeAddress(state.address));
}

async function show() {
  const now = (state.address = readAddress(location.hash));
  const token = (state.token = {});
  if (!now.episode) return now.list ? showList() : showSummary();
  const rows = [now.episode, ...now.others].map((id) => source.byId.get(id));
  // A link may be opened before its rows have arrived; `follow` then calls this function again.
  if (rows.includes(undefined)) {
    showMessage(source.complete ? "This episode does not exist" : "loading …", source.complete ? now.episode : "");
    state.page.draw = show;
    return undefined;
  }
  state.lastEpisode = now.episode;
  const views = await Promise.all(rows.map((row) => loadEpisode(row.number)));
  if (token !== state.token) return undefined; // the user has navigated away
  const broken = views.find((view) => view.problem);
  if (broken) return showMessage("This episode cannot be shown", broken.problem);
  if (views.length > 1) return showComparison(views, now);
  return now.team ? showTeam(views[0], now) : showEpisode(views[0], now);
}

function setBar(title, controls) {
  const back = (state.address.episode || state.address.list) && el("button", { onclick: goBack, title: "Esc" }, "←");
  bar.replaceChildren(...[back, el("h1", {}, title), el("span", { class: "grow" }), ...controls, el("button", { onclick: showHelp, title: "?" }, "keys")].flat(Infinity).filter(Boolean));
}

function liveSign() {
  return boot.live && el("span", { class: "soft", id: "live" }, "live");
}

function showMessage(title, text) {
  state.page = { name: "message", drawBar: () => setBar(title, []) };
  state.page.drawBar();
  main.replaceChildren(el("p", { class: "empty" }, text));
}

// One episode.

function titleOf(id, view) {
  const row = source.byId.get(id);
  const size = row.size === null ? "" : `size ${number(row.size)}`;
  const strategy = [row.arm, row.context].map((name) => (name === "none" ? "" : name));
  return [`${row.world || view.world} seed ${row.seed}`, size, strategy[0] || "no hints", strategy[1]].filter(Boolean).join(", ");
}

function outcomeOf(id) {
  return outcomeTag(source.byId.get(id).outcome);
}

/** Model, usage, time and cost. */
function usageLine(row) {
  const parts = [
    row.model || row.policy,
    row.prompt_tokens !== null && `${number(row.prompt_tokens)} prompt and ${number(row.reply_tokens)} reply tokens`,
    row.seconds !== null && `${number(rounded(row.seconds))} s`,
    row.cost !== null && `cost ${number(rounded(row.cost))}`,
  ];
  return el("span", { class: "soft usage" }, parts.filter(Boolean).join(" · "));
}

function episodeControls(now) {
  const row = source.byId.get(now.episode);
  return [
    outcomeTag(row.outcome), usageLine(row),
    row.agents.length > 1 && el("button", { id: "team", title: "t", onclick: () => go({ team: true }) }, "agents side by side"),
    compareButton(now, "compare with …"),
    el("button", { title: "download this episode", onclick: async () => save(`${boot.title}-${row.number}.jsonl`, await source.raw([row]), "application/x-ndjson") }, "download"),
  ];
}

function turnRow(turn, k, open) {
  if (!turn.reply) return el("div", { class: "turn-row", onclick: () => open(k) }, el("span", { class: "soft" }, "end"), el("code", { class: "soft" }, "the last chat"), el("span"));
  const { optimal } = turn.info;
  const sign = optimal === true ? el("span", { class: "good", title: "optimal" }, "✓") : isError(turn) && el("span", { class: "bad", title: "error" }, "✗");
  const edited = turn.edits.length > 0 && el("span", { class: "warn", title: "the context was edited" }, "✂");
  return el("div", { class: "turn-row", onclick: () => open(k) }, el("span", { class: "soft" }, String(k + 1)), el("code", {}, (turn.agent ? `${turn.agent}: ` : "") + replyLine(turn.reply)), el("span", {}, edited, " ", sign));
}

function showEpisode(view, now) {
  const turns = new Rows(ROW, (turn, k) => turnRow(turn, k, (place) => page.select(place)), "turns");
  const detail = el("section", { class: "detail", tabindex: 0, "aria-label": "turn" });
  const chart = el("div");
  const page = { name: "episode", hits: [] };
  page.errors = view.turns.flatMap((turn, k) => (isError(turn) ? [k] : []));
  page.drawBar = () => setBar(titleOf(now.episode, view), episodeControls(now));
  page.move = (step) => page.select(page.place + step);
  page.select = (place) => {
    page.place = Math.max(0, Math.min(place, view.turns.length));
    replaceAddress({ turn: page.place + 1 });
    chart.replaceChildren(...(view.turns.length ? tokenChart(view, page.place, page.select) : []));
    detail.replaceChildren(turnDetail(view, page.place, state.address.text.toLowerCase()));
    // The list scrolls to the turn, so that it needs its final height.
    turns.select(page.place);
    const target = detail.querySelector("mark") || detail.querySelector(".reply");
    detail.scrollTop = 0;
    if (target) target.scrollIntoView({ block: "center" });
  };
  const find = (text) => {
    page.hits = text ? turnsWith(view, text) : [];
    setCount(text ? `${number(page.hits.length)} turns` : "");
  };
  const search = (text) => {
    replaceAddress({ text: text.trim() });
    find(text.trim());
    page.select(page.hits.length ? page.hits[0] : page.place);
  };
  const field = el("input", { type: "search", id: "search", placeholder: "search ( / ), next match ( n )", value: now.text, "aria-label": "search this episode", oninput: (event) => search(event.target.value) });
  state.page = page;
  page.drawBar();
  main.replaceChildren(chart, el("div", { class: "episode" }, el("div", { class: "turns" }, el("div", { class: "filters" }, field, el("span", { id: "count", class: "soft" })), turns.element), detail));
  turns.show([...view.turns, view.end], 0);
  find(now.text);
  page.select(now.turn ? now.turn - 1 : page.hits[0] || 0);
  turns.element.focus();
}

// Keys.

const KEYS = [
  ["j  ↓", "next episode or turn"], ["k  ↑", "previous episode or turn"], ["Enter  o", "open"],
  ["Home  End", "first or last"], ["/", "search"], ["n  N", "next or previous match or difference"],
  ["e  E", "next or previous error"], ["c", "compare with another episode of this instance"],
  ["t", "agents side by side"], ["Esc", "back"], ["?", "show this help"],
];

function showDialog(title, ...content) {
  help.replaceChildren(el("h2", {}, title), ...content);
  if (!help.open) help.showModal();
}

function showHelp() {
  const close = el("button", { onclick: () => help.close() }, "close");
  showDialog("Keys", el("div", { class: "keys" }, KEYS.map(([key, what]) => [el("span", {}, key.split("  ").map((each) => [el("kbd", {}, each), " "])), el("span", {}, what)])), el("p", {}, close));
}

/** Select the next or previous of the given places on the page. */
function next(places, direction) {
  const { page } = state;
  const ahead = (places || []).filter((k) => direction * (k - page.place) > 0);
  if (ahead.length) page.select(direction > 0 ? ahead[0] : ahead[ahead.length - 1]);
}

function nextHit(direction) {
  next(state.page.hits, direction);
}

function move(step) {
  if (state.page.move) state.page.move(step);
}

function press(selector) {
  const control = document.querySelector(selector);
  if (!control) return;
  control.focus();
  control.click();
}

/** Return to the episode, the list or the summary. */
function goBack() {
  const { address, page } = state;
  if (address.others.length || address.team) go({ others: [], team: false });
  else if (address.episode) go({ list: true, episode: "", turn: 0 });
  else if (address.list) go({ list: false });
}

const ACTIONS = {
  j: () => move(1), ArrowDown: () => move(1), k: () => move(-1), ArrowUp: () => move(-1),
  Home: () => move(-Infinity), End: () => move(Infinity),
  n: () => nextHit(1), N: () => nextHit(-1), e: () => next(state.page.errors, 1), E: () => next(state.page.errors, -1),
  "/": () => press("#search"), c: () => press("#compare"), t: () => press("#team"), "?": showHelp,
  Enter: () => state.page.enter && state.page.enter(), o: () => state.page.enter && state.page.enter(), Escape: goBack,
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (event.target.matches("input, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const scrolls = event.target.matches(".detail, .summary") && event.key.length > 1 && !["Escape", "Enter"].includes(event.key);
  const presses = event.target.matches("summary, button, a") && event.key === "Enter";
  const action = ACTIONS[event.key];
  if (scrolls || presses || !action) return;
  event.preventDefault();
  action();
});

async function follow() {
  let sign = "live";
  let news = false;
  try {
    news = document.hidden ? false : await source.refresh();
  } catch (error) {
    sign = "disconnected";
  }
  setTimeout(follow, source.complete || sign !== "live" ? POLL : 0);
  const live = document.getElementById("live");
  if (live) live.textContent = sign;
  const { page, address } = state;
  const known = [address.episode, ...address.others].every((id) => !id || source.byId.has(id));
  if (news && page && page.draw) page.draw();
  else if (news && page && known) page.drawBar();
}

window.addEventListener("hashchange", show);
show();
if (boot.live) follow();
