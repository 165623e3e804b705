// The page: the list of episodes, one episode, a team's agents or two episodes side by side.

const ROW = 30;
// Milliseconds between polls for new episodes.
const POLL = 2000;
// Milliseconds after the last keystroke before a search starts.
const PAUSE = 250;
const FILTERS = ["world", "arm", "context", "policy", "outcome"];

const bar = document.getElementById("bar");
const main = document.getElementById("main");
const help = document.getElementById("help");
// `matches`: the numbers of the episodes that contain the search text, or null.
const state = { filters: {}, label: "", text: "", matches: null, rows: [], list: null, page: null, searches: 0 };

document.title = `${boot.title} - agentgym`;

function route() {
  const values = new URLSearchParams(location.hash.slice(1));
  const whole = (name) => (/^\d+$/.test(values.get(name) || "") ? Number(values.get(name)) : null);
  return { episode: whole("episode"), turn: whole("turn") || 0, other: whole("with"), team: values.has("team") };
}

function go(values) {
  const parts = Object.entries(values).filter(([, value]) => value !== null && value !== false);
  location.hash = parts.map(([name, value]) => `${name}=${value === true ? "" : value}`).join("&");
}

/** Change the turn without a new entry in the browser's history. */
function replaceTurn(turn) {
  const now = route();
  history.replaceState(null, "", `#episode=${now.episode}&turn=${turn}`);
}

async function show() {
  const now = route();
  const token = (state.token = {});
  if (now.episode === null) return showList();
  const view = await loadEpisode(now.episode);
  const other = now.other === null ? null : await loadEpisode(now.other);
  if (token !== state.token) return undefined; // the user has navigated away
  if (view.problem || (other && other.problem)) return showProblem(view.problem || other.problem);
  if (other) return showPair(view, other, now);
  if (now.team) return showTeam(view, now);
  return showEpisode(view, now);
}

function setBar(title, ...controls) {
  const back = location.hash.length > 1 && el("button", { onclick: () => go({}), title: "Esc" }, "← episodes");
  bar.replaceChildren(...[back, el("h1", {}, title), el("span", { class: "grow" }), ...controls, el("button", { onclick: showHelp, title: "?" }, "keys")].flat(Infinity).filter(Boolean));
}

function showProblem(problem) {
  state.page = null;
  setBar("This episode cannot be shown");
  main.replaceChildren(el("p", { class: "empty" }, problem));
}

// The list.

function keeps(row) {
  return FILTERS.every((name) => !state.filters[name] || row[name] === state.filters[name])
    && (!state.label || state.label in row.labels)
    && (state.matches === null || state.matches.has(row.number));
}

function episodeRow(row) {
  const number_ = (value) => el("span", { class: "number" }, value);
  const wide = (child) => { child.classList.add("wide"); return child; };
  const cells = [
    wide(number_(String(row.number))), el("span", {}, outcomeTag(row.outcome)),
    el("span", { title: row.world }, row.world || row.problem), el("span", {}, row.arm), wide(el("span", { title: row.context }, row.context)),
    wide(el("span", { title: row.policy }, row.policy)), number_(row.seed === null ? "" : String(row.seed)), wide(number_(number(row.horizon))),
    number_(number(row.turns)), wide(number_(number(Math.round(1000 * row.reward) / 1000))), wide(number_(percent(row.optimal))), wide(number_(number(row.tokens))),
  ];
  return el("div", { class: "episode-row", title: row.problem || null, onclick: () => go({ episode: row.number }) }, cells);
}

function headRow() {
  const names = ["#", "outcome", "world", "arm", "context", "policy", "seed", "size", "turns", "reward", "optimal", "max tokens"];
  const narrow = new Set(["outcome", "world", "arm", "seed", "turns"]);
  const right = new Set(["#", "seed", "size", "turns", "reward", "optimal", "max tokens"]);
  return el("div", { class: "heads" }, names.map((name) => el("span", { class: `${narrow.has(name) ? "" : "wide "}${right.has(name) ? "number" : ""}` }, name)));
}

function filterBox(name, values, chosen, change) {
  const options = values.map((value) => el("option", { value, selected: value === chosen ? "" : null }, value));
  return el("select", { "aria-label": name, name, onchange: (event) => change(event.target.value) }, el("option", { value: "" }, `any ${name}`), options);
}

function filterBar() {
  const unique = (values) => [...new Set(values)].filter(Boolean).sort();
  const boxes = FILTERS.map((name) => [name, unique(source.rows.map((row) => row[name]))])
    .filter(([name, values]) => values.length > 1 || state.filters[name])
    .map(([name, values]) => filterBox(name, values, state.filters[name], (value) => { state.filters[name] = value; drawList(); }));
  const labels = unique(source.rows.flatMap((row) => Object.keys(row.labels)));
  const search = el("input", { type: "search", id: "search", placeholder: "search episodes ( / )", value: state.text, "aria-label": "search episodes", oninput: (event) => searchSoon(event.target.value) });
  return el("div", { class: "filters" }, search, boxes,
    labels.length > 0 && filterBox("label", labels, state.label, (value) => { state.label = value; drawList(); }), el("span", { id: "count", class: "soft" }));
}

function searchSoon(text) {
  state.text = text.trim();
  const search = ++state.searches;
  setTimeout(async () => {
    if (search !== state.searches) return;
    setCount("searching …");
    const matches = state.text ? new Set(await source.search(state.text)) : null;
    if (search !== state.searches) return;
    state.matches = matches;
    drawList();
  }, PAUSE);
}

function setCount(text) {
  const count = document.getElementById("count");
  if (count) count.textContent = text;
}

function showList() {
  state.page = "list";
  setBar(boot.title, boot.live && el("span", { class: "soft", id: "live" }, "live"));
  state.list = new Rows(ROW, episodeRow, "episodes");
  main.replaceChildren(filterBar(), headRow(), state.list.element);
  drawList();
  state.list.element.focus();
}

function drawList() {
  const chosen = state.rows[state.list.selected];
  state.rows = source.rows.filter(keeps);
  state.list.show(state.rows, Math.max(0, chosen ? state.rows.findIndex((row) => row.number === chosen.number) : 0));
  const scrollbar = state.list.element.offsetWidth - state.list.element.clientWidth;
  document.querySelector(".heads").style.paddingRight = `${12 + scrollbar}px`;
  const reading = source.complete ? "" : ", loading …";
  setCount(`${number(state.rows.length)} of ${number(source.rows.length)} episodes${reading}`);
}

// One episode.

function titleOf(number_, view) {
  const row = source.rows.find((each) => each.number === number_);
  return row ? `${row.world} seed ${row.seed}, ${row.arm}, ${row.context}` : `${view.world} seed ${view.seed}`;
}

function controls(view, now) {
  const row = source.rows.find((each) => each.number === now.episode);
  const others = row ? source.rows.filter((each) => each.instance === row.instance && each.number !== row.number && row.instance) : [];
  const names = others.map((each) => el("option", { value: each.number }, `${each.number}: ${each.arm}, ${each.context}, ${each.policy} (${each.outcome})`));
  return [
    row && outcomeTag(row.outcome),
    row && row.agents.length > 1 && el("button", { id: "team", onclick: () => go({ episode: now.episode, team: true }) }, "agents side by side"),
    names.length > 0 && el("select", { id: "compare", "aria-label": "compare", onchange: (event) => go({ episode: now.episode, with: event.target.value }) }, el("option", { value: "" }, "compare with …"), names),
  ];
}

function turnRow(turn, k) {
  if (!turn.reply) return el("div", { class: "turn-row", onclick: () => state.open(k) }, el("span", { class: "soft" }, "end"), el("code", { class: "soft" }, "the last chat"), el("span"));
  const optimal = turn.info.optimal;
  const sign = optimal === true ? el("span", { class: "good", title: "optimal" }, "✓") : optimal === false ? el("span", { class: "bad", title: "not optimal" }, "✗") : "";
  const edited = turn.edits.length ? el("span", { class: "warn", title: "the context was edited" }, "✂") : "";
  return el("div", { class: "turn-row", onclick: () => state.open(k) }, el("span", { class: "soft" }, String(k + 1)), el("code", {}, (turn.agent ? `${turn.agent}: ` : "") + replyLine(turn.reply)), el("span", {}, edited, " ", sign));
}

function showEpisode(view, now) {
  const steps = [...view.turns, view.end];
  const turns = new Rows(ROW, turnRow, "turns");
  const detail = el("section", { class: "detail", tabindex: 0, "aria-label": "turn" });
  const chart = el("div");
  state.page = "episode";
  state.turns = turns;
  state.view = view;
  state.hits = state.text ? turnsWith(view, state.text) : [];
  state.open = (place) => {
    turns.select(place);
    replaceTurn(turns.selected);
    chart.replaceChildren(...(view.turns.length ? tokenChart(view, turns.selected, state.open) : []));
    detail.replaceChildren(turnDetail(view, turns.selected, state.text.toLowerCase()));
    detail.scrollTop = 0;
    const written = detail.querySelector(".reply");
    const mark = detail.querySelector("mark");
    if (mark) mark.scrollIntoView({ block: "center" });
    else if (written) written.scrollIntoView({ block: "center" });
  };
  setBar(titleOf(now.episode, view), controls(view, now));
  const search = el("input", { type: "search", id: "search", placeholder: "search ( / ), next match ( n )", value: state.text, "aria-label": "search this episode", oninput: (event) => searchTurns(event.target.value) });
  main.replaceChildren(chart, el("div", { class: "episode" }, el("div", { class: "turns" }, el("div", { class: "filters" }, search, el("span", { id: "count", class: "soft" })), turns.element), detail));
  turns.show(steps, now.turn);
  state.open(state.hits.length && !now.turn ? state.hits[0] : now.turn);
  if (state.text) setCount(`${number(state.hits.length)} turns`);
  turns.element.focus();
}

function searchTurns(text) {
  state.text = text.trim();
  state.matches = null;
  state.hits = state.text ? turnsWith(state.view, state.text) : [];
  setCount(state.text ? `${number(state.hits.length)} turns` : "");
  state.open(state.hits.length ? state.hits[0] : state.turns.selected);
}

function nextHit(direction) {
  const ahead = direction > 0 ? state.hits.filter((k) => k > state.turns.selected) : state.hits.filter((k) => k < state.turns.selected).reverse();
  if (ahead.length) state.open(ahead[0]);
}

// Side by side.

function turnCell(view, place, episode) {
  const turn = view.turns[place];
  if (!turn) return el("div", {});
  const results = [...turn.results, ...(turn.hidden || [])].map((m) => el("pre", { class: "soft" }, view.messages[m].parts[0][1].slice(0, 300)));
  return el("div", { class: "cell", onclick: () => go({ episode, turn: place }) }, el("div", { class: "tags" }, el("span", { class: "soft" }, `turn ${place + 1}`), turnTags(turn)), el("pre", {}, replyLine(turn.reply).slice(0, 600)), results);
}

/** A grid that creates rows as they scroll into view. */
function showGrid(columns, count, cellsOf) {
  const grid = el("div", { class: "grid", style: null }, columns.map((name) => el("div", { class: "column" }, name)));
  grid.style.gridTemplateColumns = `repeat(${columns.length}, minmax(0, 1fr))`;
  const end = el("div", {});
  const box = el("div", { class: "columns", tabindex: 0 }, grid, end);
  let made = 0;
  const more = () => {
    while (made < count && box.scrollTop + 2 * box.clientHeight + 400 > grid.scrollHeight) grid.append(...cellsOf(made++));
  };
  box.addEventListener("scroll", more);
  main.replaceChildren(box);
  more();
  box.focus();
}

function showPair(one, two, now) {
  state.page = "pair";
  const difference = firstDifference(one, two);
  setBar(difference < 0 ? "no difference" : `first difference: turn ${difference + 1}`, el("button", { onclick: () => go({ episode: now.episode, turn: Math.max(0, difference) }) }, "open the first episode here"), el("button", { onclick: () => go({ episode: now.other, turn: Math.max(0, difference) }) }, "open the second episode here"));
  showGrid([titleOf(now.episode, one), titleOf(now.other, two)], Math.max(one.turns.length, two.turns.length), (k) => [
    ...(k === difference ? [el("div", { class: "difference" }, "first difference")] : []), turnCell(one, k, now.episode), turnCell(two, k, now.other),
  ]);
}

function showTeam(view, now) {
  state.page = "team";
  const agents = [...new Set(view.turns.map((turn) => turn.agent))];
  setBar(titleOf(now.episode, view), el("button", { onclick: () => go({ episode: now.episode }) }, "turn by turn"));
  showGrid(agents, view.turns.length, (k) => agents.map((agent) => (view.turns[k].agent === agent ? turnCell(view, k, now.episode) : el("div", {}))));
}

// Keys.

const KEYS = [
  ["j  ↓", "next episode or turn"], ["k  ↑", "previous episode or turn"], ["Enter  o", "open the episode"],
  ["Home  End", "first or last"], ["/", "search"], ["n  N", "next or previous match"],
  ["c", "compare with another episode of this instance"], ["t", "agents side by side"], ["Esc", "back"], ["?", "show this help"],
];

function showHelp() {
  const close = el("button", { onclick: () => help.close() }, "close");
  help.replaceChildren(el("h2", {}, "Keys"), el("div", { class: "keys" }, KEYS.map(([key, what]) => [el("span", {}, key.split("  ").map((each) => [el("kbd", {}, each), " "])), el("span", {}, what)])), el("p", {}, close));
  if (!help.open) help.showModal();
}

function move(step) {
  if (state.page === "list") state.list.select(state.list.selected + step);
  if (state.page === "episode") state.open(state.turns.selected + step);
}

function press(selector) {
  const control = document.querySelector(selector);
  if (!control) return;
  control.focus();
  control.click();
}

const ACTIONS = {
  j: () => move(1), ArrowDown: () => move(1), k: () => move(-1), ArrowUp: () => move(-1),
  Home: () => move(-Infinity), End: () => move(Infinity),
  n: () => state.page === "episode" && nextHit(1), N: () => state.page === "episode" && nextHit(-1),
  "/": () => press("#search"), c: () => press("#compare"), t: () => press("#team"), "?": showHelp,
};

function openSelected() {
  const row = state.page === "list" && state.rows[state.list.selected];
  if (row) go({ episode: row.number });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const typing = event.target.matches("input, select");
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else history.length > 1 && location.hash.length > 1 && go({});
    return;
  }
  const scrolls = event.target.matches(".detail") && event.key.length > 1;
  if (typing || scrolls || event.target.matches("summary, button")) return;
  const action = event.key === "Enter" || event.key === "o" ? openSelected : ACTIONS[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

async function follow() {
  let wait = POLL;
  try {
    const news = document.hidden ? false : await source.refresh();
    wait = source.complete ? POLL : 0;
    const live = document.getElementById("live");
    if (live) live.textContent = "live";
    if (news && state.page === "list") {
      const search = document.activeElement && document.activeElement.id === "search";
      if (search) drawList();
      else {
        const selected = state.list.selected;
        const top = state.list.element.scrollTop;
        showList();
        state.list.select(selected);
        state.list.element.scrollTop = top;
      }
    }
  } catch (error) {
    const live = document.getElementById("live");
    if (live) live.textContent = "disconnected";
  }
  setTimeout(follow, wait);
}

window.addEventListener("hashchange", show);
show();
if (boot.live) follow();
