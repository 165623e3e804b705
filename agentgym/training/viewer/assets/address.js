// The address: page, filters and sorting are in its fragment, so that a link shows what its sender saw.

// Row fields with a filter. `label` keeps the episodes with a step of that label.
const FILTERS = ["run", "world", "arm", "size", "seed", "context", "policy", "model", "outcome", "label"];
// Settings of the summary and of the list, with the search text.
const SETTINGS = ["rows", "measure", "sort", "text"];

/** The parts of an address. Turns count from 1; 0 means that none is given. */
function readAddress(hash) {
  const values = new URLSearchParams(hash.replace(/^#/, ""));
  const turn = /^\d{1,9}$/.test(values.get("turn") || "") ? Number(values.get("turn")) : 0;
  const address = { list: values.has("list"), episode: values.get("episode") || "", others: values.getAll("with"), turn, team: values.has("team"), filters: {} };
  for (const name of SETTINGS) address[name] = values.get(name) || "";
  for (const name of FILTERS) {
    if (values.get(name)) address.filters[name] = values.get(name);
  }
  return address;
}

/** The fragment of an address, the inverse of `readAddress`. */
function writeAddress(address) {
  const pairs = [];
  const add = (name, value) => value && pairs.push(value === true ? name : `${name}=${encodeValue(value)}`);
  add("list", address.list);
  add("episode", address.episode);
  for (const other of address.others) add("with", other);
  add("turn", address.turn);
  add("team", address.team);
  for (const name of FILTERS) add(name, address.filters[name]);
  for (const name of SETTINGS) add(name, address[name]);
  return `#${pairs.join("&")}`;
}

function encodeValue(value) {
  return encodeURIComponent(value).replaceAll("%3A", ":").replaceAll("%2F", "/");
}

/** An episode's name in addresses: its log and its place in the log, the same in every session. */
function episodeId(row) {
  return `${row.log}:${row.place}`;
}
