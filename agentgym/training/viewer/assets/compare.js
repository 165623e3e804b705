// Side by side: episodes of one instance, or the agents of a team.

const boldNotes = (parts) => parts.map(([tag, note]) => el("div", { class: "note" }, el("b", {}, tag), el("pre", {}, note.slice(0, 600))));

/** The hints that a turn's chat shows for the first time. */
function newNotes(view, place) {
  const { changes } = view.turns[place];
  const numbers = [...(changes.set || []).map(([, message]) => message), ...changes.add.map(([message]) => message)];
  return boldNotes(numbers.map((k) => view.messages[k]).filter((message) => message.role !== "assistant").flatMap((message) => message.parts.slice(1)));
}

function turnCell(view, place, open) {
  const turn = view.turns[place];
  if (!turn) return el("div", {});
  const results = [...turn.results, ...(turn.hidden || [])].map((m) => el("pre", { class: "soft" }, view.messages[m].parts[0][1].slice(0, 300)));
  const top = el("div", { class: "tags" }, el("span", { class: "soft" }, `turn ${place + 1}`), turnTags(turn));
  return el("div", { class: "cell", onclick: () => open(place) }, top, newNotes(view, place), el("pre", {}, replyLine(turn.reply).slice(0, 600)), results);
}

// Turns that a grid shows before the selected one, and adds at once when the user scrolls up.
const BEFORE = 8;

/** A grid that creates the rows around a turn, and others as they scroll into view. */
class TurnGrid {
  constructor(heads, count, cellsOf) {
    this.count = count;
    this.cellsOf = cellsOf;
    // The cells of the turns from `first` on.
    this.first = 0;
    this.rows = [];
    this.grid = el("div", { class: "grid" }, heads.map((head) => el("div", { class: "column" }, head)));
    this.grid.style.gridTemplateColumns = `repeat(${heads.length}, minmax(0, 1fr))`;
    this.element = el("div", { class: "columns", tabindex: 0 }, this.grid);
    this.element.addEventListener("scroll", () => this.fill());
  }

  append() {
    const cells = this.cellsOf(this.first + this.rows.length);
    this.rows.push(cells);
    this.grid.append(...cells);
  }

  prepend() {
    const cells = this.cellsOf(--this.first);
    this.rows.unshift(cells);
    for (const cell of cells) this.grid.insertBefore(cell, this.rows[1][0]);
  }

  fill(top = this.element.scrollTop) {
    const { element, grid } = this;
    while (this.first + this.rows.length < this.count && top + 2 * element.clientHeight + 400 > grid.scrollHeight) this.append();
    if (top > 400 || this.first === 0) return;
    const height = grid.scrollHeight;
    for (let k = 0; k < BEFORE && this.first > 0; k++) this.prepend();
    element.scrollTop = top + grid.scrollHeight - height;
  }

  /** Scroll to a turn and mark it. */
  reveal(place) {
    if (place < this.first || place > this.first + this.rows.length) {
      for (const cell of this.rows.flat()) cell.remove();
      this.rows = [];
      this.first = Math.max(0, place - BEFORE);
    }
    while (this.first + this.rows.length <= Math.min(place, this.count - 1)) this.append();
    for (const cell of this.grid.querySelectorAll(".current")) cell.classList.remove("current");
    const cells = this.rows[place - this.first];
    if (!cells) return;
    for (const cell of cells) cell.classList.add("current");
    const top = () => cells[0].offsetTop - this.grid.firstElementChild.offsetHeight - 8;
    this.fill(Math.max(top(), 401));
    this.element.scrollTop = top();
  }
}

function showTurns(page, heads, count, cellsOf, turn) {
  const grid = new TurnGrid(heads, count, cellsOf);
  const select = (place) => {
    page.place = Math.max(0, Math.min(place, count - 1));
    replaceAddress({ turn: page.place + 1 });
    grid.reveal(page.place);
  };
  Object.assign(page, { move: (step) => select(page.place + step), select });
  state.page = page;
  const panels = page.view ? panelBlocks(page.view, null) : [];
  main.replaceChildren(...panels, grid.element);
  select(turn);
  grid.element.focus();
}

function showComparison(views, now) {
  const ids = [now.episode, ...now.others];
  const places = differences(views);
  const count = Math.max(...views.map((view) => view.turns.length));
  const page = { name: "comparison", hits: places };
  const name = () => {
    const shown = places.indexOf(page.place);
    if (!places.length) return "no difference";
    return shown < 0 ? `${places.length} turns differ` : `difference ${shown + 1} of ${places.length}: turn ${page.place + 1}`;
  };
  page.drawBar = () => setBar(name(), [
    el("button", { onclick: () => nextHit(-1), title: "N" }, "previous difference"),
    el("button", { onclick: () => nextHit(1), title: "n" }, "next difference"),
    compareButton(now, "add episode …"),
  ]);
  const cells = (k) => views.map((view, column) => {
    const cell = turnCell(view, k, (place) => go({ episode: ids[column], others: [], turn: place + 1 }));
    if (differing.has(k)) cell.classList.add("differs");
    return cell;
  });
  const differing = new Set(places);
  const heads = ids.map((id, column) => [titleOf(id, views[column]), " ", outcomeOf(id)]);
  showTurns(page, heads, count, cells, now.turn ? now.turn - 1 : places[0] || 0);
  const { select } = page;
  page.select = (place) => { select(place); page.drawBar(); };
  page.move = (step) => page.select(page.place + step);
  page.drawBar();
}

function showTeam(view, now) {
  const agents = [...new Set(view.turns.map((turn) => turn.agent))];
  const page = { name: "team", view };
  page.drawBar = () => setBar(titleOf(now.episode, view), [el("button", { onclick: () => go({ team: false }) }, "turn by turn")]);
  const open = (place) => go({ team: false, turn: place + 1 });
  const cells = (k) => agents.map((agent) => (view.turns[k].agent === agent ? turnCell(view, k, open) : el("div", {})));
  showTurns(page, agents, view.turns.length, cells, Math.max(0, now.turn - 1));
  page.drawBar();
}

// The choice of an episode to compare with.

function otherEpisodes(now) {
  const row = source.byId.get(now.episode);
  if (!row || !row.instance) return [];
  const shown = new Set([now.episode, ...now.others]);
  return source.rows.filter((each) => each.instance === row.instance && !shown.has(episodeId(each)));
}

function compareButton(now, text) {
  return otherEpisodes(now).length > 0 && el("button", { id: "compare", title: "c", onclick: () => chooseEpisode(now) }, text);
}

/** A list in a dialog: arrows pick, Enter opens. */
function chooseEpisode(now) {
  const others = otherEpisodes(now);
  const names = ["run", "arm", "context", "policy", "model"].filter((name) => valuesOf([source.byId.get(now.episode), ...others], name).length > 1);
  const list = el("select", { size: Math.max(2, Math.min(14, others.length)), "aria-label": "compare with" },
    others.map((row) => el("option", { value: episodeId(row) }, [...names.map((name) => row[name]), `${row.outcome}, ${row.turns} turns`].join(", "))));
  list.selectedIndex = 0;
  const choose = () => {
    help.close();
    go({ others: [...now.others, list.value], team: false, turn: 0 });
  };
  list.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault(); // closing returns the focus to the button, which Enter would press
    choose();
  });
  list.addEventListener("dblclick", choose);
  showDialog("Compare with another episode of this instance", list, el("p", { class: "soft" }, "Arrows pick, Enter opens."), el("button", { onclick: choose }, "compare"));
  list.focus();
}
