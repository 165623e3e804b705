// The list of episodes, with its filters and downloads.

function filterBox(name, values, chosen, change) {
  const texts = values.map(String);
  if (chosen && !texts.includes(chosen)) texts.push(chosen);
  // A menu of more values would be harder to use than typing.
  if (texts.length > 100) {
    return el("input", { placeholder: `any ${name}`, "aria-label": name, name, size: 8, value: chosen || "", onchange: (event) => change(event.target.value.trim()) });
  }
  const options = texts.map((value) => el("option", { value, selected: value === chosen ? "" : null }, value));
  return el("select", { "aria-label": name, name, onchange: (event) => change(event.target.value) }, el("option", { value: "" }, `any ${name}`), options);
}

function setFilter(name, value) {
  const filters = { ...state.address.filters };
  if (value) filters[name] = value;
  else delete filters[name];
  replaceAddress({ filters });
  state.page.draw();
}

/** The search field and a filter for each field that differs. */
function filterBar() {
  const { filters, text } = state.address;
  const boxes = FILTERS.map((name) => [name, valuesOf(source.rows, name)])
    .filter(([name, values]) => values.length > 1 || filters[name])
    .map(([name, values]) => filterBox(name, values, filters[name], (value) => setFilter(name, value)));
  const search = el("input", { type: "search", id: "search", placeholder: "search episodes ( / )", value: text, "aria-label": "search episodes", oninput: (event) => searchSoon(event.target.value) });
  return [search, boxes, el("span", { id: "count", class: "soft" })].flat();
}

function drawFilters(bar) {
  // A filter in use must not vanish under the user's hands.
  if (!bar.contains(document.activeElement)) bar.replaceChildren(...filterBar());
}

function searchSoon(text) {
  replaceAddress({ text: text.trim() });
  clearTimeout(state.pause);
  state.pause = setTimeout(searchNow, PAUSE);
}

/** Search the episodes that have not been searched for the address's text. */
async function searchNow() {
  const { text } = state.address;
  const { generation } = source;
  if (state.search.text !== text || state.search.generation !== generation) {
    state.search = { text, generation, upTo: 0, busy: false, matches: new Set() };
  }
  const { search } = state;
  const end = source.rows.length;
  if (!text || search.busy || search.upTo === end) return;
  search.busy = true;
  try {
    setCount("searching …");
    for (const match of await source.search(text, search.upTo)) search.matches.add(match);
    search.upTo = end;
  } finally {
    search.busy = false;
  }
  if (search === state.search && state.page.draw) state.page.draw();
}

/** The rows that the filters and the search keep. */
function keptRows() {
  const { filters, text, sort } = state.address;
  return sorted(source.rows.filter((row) => keeps(row, filters, text ? state.search.matches : null)), sort);
}

function setCount(text) {
  const count = document.getElementById("count");
  if (count) count.textContent = text;
}

function countRows(rows) {
  const searching = state.address.text && state.search.upTo < source.rows.length ? ", searching …" : "";
  setCount(`${number(rows.length)} of ${number(source.rows.length)} episodes${source.complete ? "" : ", loading …"}${searching}`);
}

function cellText(row, { name, share }) {
  const value = row[name];
  if (share) return percent(value);
  return typeof value === "number" ? (name === "seed" || name === "number" ? String(value) : number(rounded(value))) : value ?? "";
}

function episodeRow(row, columns) {
  const cells = columns.map((column) => {
    const text = column.name === "number" ? String(row.place) : cellText(row, column);
    const shown = column.name === "outcome" ? outcomeTag(text) : column.name === "world" ? text || row.problem : text;
    return el("span", { class: `${column.wide ? "wide " : ""}${column.right ? "number" : ""}`, title: column.right ? null : text }, shown);
  });
  return el("div", { class: "episode-row", title: row.problem || null, onclick: () => openRow(row) }, cells);
}

function openRow(row) {
  go({ list: false, episode: episodeId(row), others: [], turn: 0, team: false });
}

/** A head sorts by its column: ascending, then descending, then not at all. */
function headCell(column) {
  const { sort } = state.address;
  const direction = sort === column.name ? "ascending" : sort === `-${column.name}` ? "descending" : "none";
  const next = { none: column.name, ascending: `-${column.name}`, descending: "" }[direction];
  const arrow = { none: "", ascending: " ↑", descending: " ↓" }[direction];
  const sortBy = () => { replaceAddress({ sort: next }); state.page.draw(); };
  return el("span", { class: `${column.wide ? "wide " : ""}${column.right ? "number" : ""}`, role: "columnheader", "aria-sort": direction },
    el("button", { onclick: sortBy, name: column.name, title: `sort by ${column.title}` }, column.title + arrow));
}

function downloads(rows) {
  const name = boot.title.replaceAll(/[^\w.-]+/g, "_");
  const raw = async (event) => {
    event.target.disabled = true;
    save(`${name}.jsonl`, await source.raw([...rows()].sort((a, b) => a.number - b.number)), "application/x-ndjson");
    event.target.disabled = false;
  };
  return el("details", { class: "menu" }, el("summary", {}, "download"), el("div", {},
    el("button", { onclick: () => save(`${name}.csv`, [toCsv(rows())], "text/csv") }, "rows (CSV)"),
    el("button", { onclick: () => save(`${name}.json`, [JSON.stringify(rows(), null, 1)], "application/json") }, "rows (JSON)"),
    el("button", { onclick: raw }, "episodes (JSON lines)")));
}

function save(name, parts, type) {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  el("a", { href: url, download: name }).click();
  // The browser reads the data after the click.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

function showList() {
  let columns = [];
  let rows = [];
  const filters = el("div", { class: "filters" });
  const heads = el("div", { class: "heads", role: "row" });
  const list = new Rows(ROW, (row) => episodeRow(row, columns), "episodes");
  const box = el("div", { class: "table" }, heads, list.element);
  const page = { name: "list", list };
  page.draw = () => {
    const chosen = rows[list.selected];
    columns = columnsOf(source.rows);
    rows = keptRows();
    box.style.setProperty("--tracks", columns.map((column) => column.width).join(" "));
    box.style.setProperty("--narrow-tracks", columns.filter((column) => !column.wide).map((column) => column.narrow || column.width).join(" "));
    drawFilters(filters);
    const focused = heads.contains(document.activeElement) && document.activeElement.name;
    heads.replaceChildren(...columns.map(headCell));
    if (focused) heads.querySelector(`[name=${focused}]`).focus();
    list.show(rows, Math.max(0, chosen ? rows.findIndex((row) => row.number === chosen.number) : 0));
    heads.style.paddingRight = `${12 + list.element.offsetWidth - list.element.clientWidth}px`;
    countRows(rows);
    searchNow();
  };
  page.drawBar = () => setBar(boot.title, [el("button", { onclick: () => go({ list: false }), title: "Esc" }, "summary"), downloads(() => rows), liveSign()]);
  page.move = (step) => list.select(list.selected + step);
  page.enter = () => rows[list.selected] && openRow(rows[list.selected]);
  state.page = page;
  page.drawBar();
  main.replaceChildren(filters, box);
  page.draw();
  const last = rows.findIndex((row) => episodeId(row) === state.lastEpisode);
  if (last > 0) list.select(last);
  list.element.focus();
}
