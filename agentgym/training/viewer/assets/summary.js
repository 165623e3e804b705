// The summary: figures, tables by arm and size that link to episodes, and the run's own files.

function listAddress(filters) {
  return writeAddress({ ...state.address, list: true, episode: "", others: [], turn: 0, team: false, filters: { ...state.address.filters, ...filters } });
}

function measured(measure, mean) {
  return MEASURES[measure].share ? percent(mean) : number(rounded(mean));
}

function tile(title, value, filters) {
  const shown = [el("b", {}, value), el("span", {}, title)];
  return filters ? el("a", { class: "tile", href: listAddress(filters) }, shown) : el("div", { class: "tile" }, shown);
}

function tiles(rows) {
  const parts = [tile("episodes", number(rows.length), {})];
  for (const [name, { title }] of Object.entries(MEASURES)) {
    const { mean } = meanOf(rows, name);
    if (mean !== null) parts.push(tile(title, measured(name, mean)));
  }
  const cost = rows.reduce((sum, row) => sum + (row.cost || 0), 0);
  if (cost) parts.push(tile("total cost", number(rounded(cost))));
  const outcomes = valuesOf(rows, "outcome").map((outcome) => el("a", { href: listAddress({ outcome }) }, outcomeTag(outcome), ` ${number(rows.filter((row) => row.outcome === outcome).length)}`));
  return [el("div", { class: "tiles" }, parts), el("div", { class: "tags outcomes" }, outcomes)];
}

function tableCell(rows, measure, filters, top) {
  const { count, mean } = meanOf(rows, measure);
  if (!rows.length) return el("td", {});
  const cell = el("td", {}, el("a", { href: listAddress(filters) }, el("b", {}, mean === null ? "–" : measured(measure, mean)), el("small", {}, number(count))));
  cell.style.setProperty("--share", `${Math.round((40 * (mean || 0)) / top)}%`);
  return cell;
}

function table({ filters, names, sizes, rowsOf }, by, measure) {
  const means = names.flatMap((name) => sizes.map((size) => meanOf(rowsOf(name, size), measure).mean || 0));
  const top = MEASURES[measure].share ? 1 : Math.max(...means, Number.MIN_VALUE);
  const named = (size) => (size === null ? {} : { size: String(size) });
  const heads = sizes.map((size) => el("th", { scope: "col" }, size === null ? "all" : number(size)));
  const title = Object.values(filters).join(", ");
  return el("table", { class: "matrix" },
    title && el("caption", {}, title),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, sizes.some((size) => size !== null) ? `${by} \\ size` : by), heads)),
    el("tbody", {}, names.map((name) => el("tr", {}, el("th", { scope: "row" }, el("a", { href: listAddress({ ...filters, [by]: name }) }, name)),
      sizes.map((size) => tableCell(rowsOf(name, size), measure, { ...filters, [by]: name, ...named(size) }, top))))));
}

function choice(title, names, chosen, change) {
  return el("label", {}, `${title} `, el("select", { name: title, onchange: (event) => change(event.target.value) },
    names.map(([value, text]) => el("option", { value, selected: value === chosen ? "" : null }, text))));
}

function tableSection(rows) {
  const choose = (name) => (value) => { replaceAddress({ [name]: value }); state.page.draw(); };
  const measures = Object.keys(MEASURES).filter((name) => meanOf(rows, name).count);
  const measure = measures.includes(state.address.measure) ? state.address.measure : "solved";
  const fields = DIMENSIONS.filter((name) => valuesOf(rows, name).length);
  const by = fields.includes(state.address.rows) ? state.address.rows : defaultRows(rows);
  return [
    el("div", { class: "tags" }, choice("show", measures.map((name) => [name, MEASURES[name].title]), measure, choose("measure")), choice("by", fields.map((name) => [name, name]), by, choose("rows")), el("span", { class: "soft" }, "small: number of episodes")),
    el("div", { class: "matrices" }, tablesOf(rows, by).map((each) => table(each, by, measure))),
  ];
}

/** A text with Markdown tables; other lines stay as they are. */
function markdown(text) {
  const blocks = [];
  for (const line of text.split("\n")) {
    const cells = line.startsWith("|") ? line.slice(1, -1).split("|").map((cell) => cell.trim()) : null;
    const last = blocks[blocks.length - 1];
    if (cells && cells.every((cell) => /^:?-+:?$/.test(cell))) continue;
    if (cells && last && last.rows) last.rows.push(cells);
    else blocks.push(cells ? { rows: [cells] } : line);
  }
  return blocks.filter(Boolean).map((block) => (block.rows
    ? el("table", { class: "plain" }, block.rows.map((cells, k) => el("tr", {}, cells.map((cell) => el(k ? "td" : "th", {}, cell)))))
    : el(block.startsWith("#") ? "h4" : "p", {}, block.replace(/^#+ /, ""))));
}

function fileBlock({ run, name, text, image }, named) {
  const title = named ? `${run}: ${name}` : name;
  if (image) return el("figure", {}, el("img", { src: image, alt: title }), el("figcaption", { class: "soft" }, title));
  const body = name.endsWith(".md") ? markdown(text) : el("pre", {}, text);
  return el("details", { class: "file" }, el("summary", {}, title), el("div", { class: "scrolls" }, body));
}

async function drawFiles(element) {
  const files = await source.files();
  const texts = files.filter((file) => file.text !== undefined);
  const images = files.filter((file) => file.image);
  const named = valuesOf(files, "run").length > 1;
  const block = (file) => fileBlock(file, named);
  element.replaceChildren(...section("Files", texts.map(block)).flat(), ...section("Figures", images.length > 0 && el("div", { class: "figures" }, images.map(block))));
}

function showSummary() {
  const filters = el("div", { class: "filters" });
  const body = el("div", {});
  const files = el("div", {});
  const page = { name: "summary" };
  page.draw = () => {
    const rows = keptRows();
    drawFilters(filters);
    body.replaceChildren(...[tiles(rows), rows.length ? tableSection(rows) : []].flat());
    countRows(rows);
    searchNow();
  };
  page.drawBar = () => setBar(boot.title, [el("button", { id: "list", onclick: () => go({ list: true }), title: "Enter" }, "episodes"), downloads(keptRows), liveSign()]);
  page.enter = () => go({ list: true });
  state.page = page;
  page.drawBar();
  const box = el("div", { class: "summary", tabindex: 0 }, body, files);
  main.replaceChildren(filters, box);
  page.draw();
  drawFiles(files);
  box.focus();
}
