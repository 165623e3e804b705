// Rows of episodes: filters, order, columns, cells of the summary's tables, and CSV.

/** Columns of the list. Narrow screens omit `wide` ones; `width` is a grid track. */
const COLUMNS = [
  { name: "number", title: "#", width: "3.2rem", right: true, wide: true },
  { name: "outcome", title: "outcome", width: "9rem", narrow: "6.5rem" },
  { name: "run", title: "run", width: "minmax(4rem, 1fr)", wide: true },
  { name: "world", title: "world", width: "minmax(4rem, 1.4fr)" },
  { name: "arm", title: "arm", width: "4rem", narrow: "3rem" },
  { name: "context", title: "context", width: "minmax(5rem, 1.4fr)", wide: true },
  { name: "policy", title: "policy", width: "minmax(5rem, 1.6fr)", wide: true },
  { name: "model", title: "model", width: "minmax(5rem, 1fr)", wide: true },
  { name: "seed", title: "seed", width: "3.5rem", narrow: "3rem", right: true },
  { name: "size", title: "size", width: "4rem", right: true, wide: true },
  { name: "turns", title: "turns", width: "4rem", narrow: "3.5rem", right: true },
  { name: "reward", title: "reward", width: "4.5rem", right: true, wide: true },
  { name: "optimal", title: "optimal", width: "5rem", right: true, wide: true, share: true },
  { name: "tokens", title: "max tokens", width: "6rem", right: true, wide: true },
  { name: "prompt_tokens", title: "prompt tokens", width: "6.5rem", right: true, wide: true },
  { name: "reply_tokens", title: "reply tokens", width: "6rem", right: true, wide: true },
  { name: "seconds", title: "seconds", width: "5rem", right: true, wide: true },
  { name: "cost", title: "cost", width: "5rem", right: true, wide: true },
];

/** Columns with content: empty ones, those that are `none` throughout, and a single run are left out. */
function columnsOf(rows) {
  return COLUMNS.filter(({ name }) => {
    const values = new Set(rows.map((row) => row[name]));
    values.delete(null);
    values.delete("");
    const [only] = values;
    if (values.size === 1 && (only === "none" || name === "run")) return false;
    return values.size > 0;
  });
}

/** Whether a row passes the filters; `matches` contains the numbers of search results, or is null. */
function keeps(row, filters, matches) {
  if (matches !== null && !matches.has(row.number)) return false;
  return Object.entries(filters).every(([name, value]) => (name === "label" ? value in row.labels : String(row[name]) === value));
}

/** Rows in the order of a column; `-name` is descending. Rows without a value come last. */
function sorted(rows, sort) {
  const name = sort.replace(/^-/, "");
  if (!COLUMNS.some((column) => column.name === name)) return rows;
  const sign = sort.startsWith("-") ? -1 : 1;
  const missing = (value) => value === null || value === "";
  return [...rows].sort((one, two) => {
    const [a, b] = [one[name], two[name]];
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    if (a === b) return one.number - two.number;
    return sign * (typeof a === "number" ? a - b : String(a).localeCompare(String(b)));
  });
}

/** The values of a field: numbers in order, the rest in order of appearance. */
function valuesOf(rows, name) {
  const all = name === "label" ? rows.flatMap((row) => Object.keys(row.labels)) : rows.map((row) => row[name]);
  const values = [...new Set(all)].filter((value) => value !== null && value !== "");
  return values.every((value) => typeof value === "number") ? values.sort((a, b) => a - b) : values;
}

// Measures of a set of episodes. `of` returns null for an episode that does not count.
const isScored = (row) => row.outcome !== "broken" && row.outcome !== "damaged";
const MEASURES = {
  solved: { title: "solved", share: true, of: (row) => (isScored(row) ? Number(row.outcome === "solved") : null) },
  reward: { title: "mean reward", of: (row) => (isScored(row) ? row.reward : null) },
  optimal: { title: "optimal steps", share: true, of: (row) => row.optimal },
  turns: { title: "mean turns", of: (row) => (isScored(row) ? row.turns : null) },
  tokens: { title: "mean of max tokens", of: (row) => row.tokens },
  prompt_tokens: { title: "mean prompt tokens", of: (row) => row.prompt_tokens },
  reply_tokens: { title: "mean reply tokens", of: (row) => row.reply_tokens },
  seconds: { title: "mean seconds", of: (row) => row.seconds },
  cost: { title: "mean cost", of: (row) => row.cost },
};

/** The mean of a measure and the number of episodes that count; the mean is null if none does. */
function meanOf(rows, measure) {
  const values = rows.map(MEASURES[measure].of).filter((value) => value !== null);
  const sum = values.reduce((total, value) => total + value, 0);
  return { count: values.length, mean: values.length ? sum / values.length : null };
}

// Fields that may form the rows of the summary's tables, or split it into several tables.
const DIMENSIONS = ["arm", "policy", "model", "context", "world", "run"];
// Fields that split: a table never pools several runs, worlds, policies or context strategies.
const SPLITTING = ["world", "run", "policy", "context", "arm"];

/** The default field for the rows of tables: the first one that differs. */
function defaultRows(rows) {
  return DIMENSIONS.find((name) => valuesOf(rows, name).length > 1) || "arm";
}

/** Rows ordered by the first appearance of their values in several fields. */
function sortedBy(rows, names) {
  const ranks = names.map((name) => new Map(valuesOf(rows, name).map((value, k) => [value, k])));
  const rank = (row, k) => ranks[k].get(row[names[k]]) ?? Infinity;
  return [...rows].sort((one, two) => {
    const k = names.findIndex((name) => one[name] !== two[name]);
    return k < 0 ? 0 : rank(one, k) - rank(two, k);
  });
}

/** The summary's tables {filters, names, sizes, rowsOf}, one per combination of the other fields. */
function tablesOf(rows, by) {
  const keyOf = (row, names) => JSON.stringify(names.map((name) => row[name]));
  const count = (names) => new Set(rows.map((row) => keyOf(row, names))).size;
  // A field that follows from the others, as the policy from the run, would only lengthen the titles.
  const split = [];
  for (const name of SPLITTING) {
    if (name !== by && count([...split, name]) > count(split)) split.push(name);
  }
  const tables = new Map();
  for (const row of sortedBy(rows, split)) {
    const key = keyOf(row, split);
    if (!tables.has(key)) tables.set(key, { filters: Object.fromEntries(split.map((name) => [name, String(row[name])])), rows: [] });
    tables.get(key).rows.push(row);
  }
  return [...tables.values()].map(({ filters, rows: own }) => {
    const cells = new Map();
    for (const row of own) {
      const key = JSON.stringify([row[by], row.size]);
      if (!cells.has(key)) cells.set(key, []);
      cells.get(key).push(row);
    }
    const sizes = valuesOf(own, "size");
    if (own.some((row) => row.size === null)) sizes.push(null);
    return { filters, names: valuesOf(own, by), sizes, rowsOf: (name, size) => cells.get(JSON.stringify([name, size])) || [] };
  });
}

/** Rows as CSV (RFC 4180). A text that a spreadsheet would run as a formula gets an apostrophe. */
function toCsv(rows) {
  const names = Object.keys(rows[0] || {});
  const cell = (value) => {
    let text = value !== null && typeof value === "object" ? JSON.stringify(value) : String(value ?? "");
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = [names.join(","), ...rows.map((row) => names.map((name) => cell(row[name])).join(","))];
  return `${lines.join("\r\n")}\r\n`;
}
