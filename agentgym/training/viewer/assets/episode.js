// The episode page: all turns, and one turn in detail.

// Messages shown initially, and added by each click on "earlier".
const AT_FIRST = 12;
const MORE = 200;
// Characters of a text shown initially.
const LONG = 6000;

function textBlock(text, needle) {
  if (text.length <= LONG) return el("pre", {}, marked(text, needle));
  const block = el("div", {}, el("pre", {}, marked(text.slice(0, LONG), needle)));
  const rest = text.length - LONG;
  block.append(el("button", { onclick: () => block.replaceChildren(el("pre", {}, marked(text, needle))) }, `show ${number(rest)} more characters`));
  return block;
}

function folded(title, text, needle) {
  const open = needle && text.toLowerCase().includes(needle);
  return el("details", { open: open ? "" : null }, el("summary", {}, title), textBlock(text, needle));
}

function callBlock(call, needle, label) {
  const tag = label && el("span", { class: `tag ${label === "optimal" || label === "productive" ? "good" : label === "neutral" ? "soft" : "bad"}` }, label);
  return el("div", { class: "call" }, el("pre", {}, marked(callText(call), needle)), tag);
}

function pictures(message) {
  return (message.images || []).map((image) => el("img", { class: "picture", src: image.url, alt: image.alt || "picture" }));
}

function messageBlock({ message, mark, isNew }, needle) {
  const dropped = mark === "dropped";
  const kind = dropped ? "dropped" : mark ? "changed" : message.role;
  const top = el("div", { class: "top" }, el("b", {}, message.role), el("span", {}, message.id), mark && el("span", { class: "tag mark" }, mark));
  const [[, text], ...notes] = message.parts;
  const body = [
    message.thinking && folded(`thinking, ${number(message.thinking.length)} characters`, message.thinking, needle),
    text && textBlock(text, needle),
    ...(message.calls || []).map((call) => callBlock(call, needle)),
    ...notes.map(([tag, note]) => el("div", { class: "note" }, el("b", {}, tag), textBlock(note, needle))),
    ...pictures(message),
  ];
  const classes = `message ${kind}${isNew && !dropped ? " new" : ""}`;
  if (dropped) return el("div", { class: classes }, top, el("details", {}, el("summary", {}, "dropped from the context"), body));
  return el("div", { class: classes }, top, body);
}

/** The observation: its last messages, and earlier ones on request. */
function chatBlock(view, place, needle) {
  const entries = chatAt(view, place);
  const block = el("div", { class: "chat" });
  let first = Math.max(0, entries.length - AT_FIRST);
  const earlier = el("button", { class: "earlier" });
  const draw = (from, to) => entries.slice(from, to).map((entry) => messageBlock(entry, needle));
  const name = () => {
    earlier.textContent = `show earlier messages (${number(first)} hidden)`;
    earlier.hidden = first === 0;
  };
  earlier.addEventListener("click", () => {
    const from = Math.max(0, first - MORE);
    earlier.after(...draw(from, first));
    first = from;
    name();
  });
  name();
  block.append(earlier, ...draw(first, entries.length));
  return block;
}

function replyBlock(turn, needle) {
  const { reply, info } = turn;
  const labels = info.labels || [];
  const read = reply.calls.length > 0 || reply.text || reply.thinking;
  return el("div", { class: "message reply" },
    reply.summary && el("span", { class: "tag mark" }, "context summary (calls are not run)"),
    reply.thinking && folded(`thinking, ${number(reply.thinking.length)} characters`, reply.thinking, needle),
    reply.text && textBlock(reply.text, needle),
    reply.calls.map((call, k) => callBlock(call, needle, labels[k])),
    !read && el("p", { class: "soft" }, reply.raw ? "unreadable reply" : "empty reply"),
    folded("raw reply", reply.raw, ""));
}

// Fields of StepInfo that other parts of the page show. All others appear as tags (`detailTags`).
const SHOWN_ELSEWHERE = ["calls", "errors", "ended", "nested", "faults", "report"];

function detailTags(detail) {
  const isEmpty = (value) => !value || (Array.isArray(value) && !value.length);
  return Object.entries(detail)
    .filter(([name, value]) => !SHOWN_ELSEWHERE.includes(name) && !isEmpty(value))
    .map(([name, value]) => el("span", { class: `tag ${name === "invalid" ? "bad" : "soft"}` }, `${name.replaceAll("_", " ")}: ${typeof value === "object" ? JSON.stringify(value) : value}`));
}

function turnTags(turn) {
  const { info } = turn;
  const detail = info.detail || {};
  const tags = [];
  if (info.optimal !== null && info.optimal !== undefined) {
    tags.push(el("span", { class: `tag ${info.optimal ? "good" : "bad"}` }, info.optimal ? "optimal" : "not optimal"));
  }
  if (info.alive === false) tags.push(el("span", { class: "tag bad" }, "already lost"));
  if (info.valid === false) tags.push(el("span", { class: "tag bad" }, "invalid"));
  if (detail.errors) tags.push(el("span", { class: "tag bad" }, `${detail.errors} errors`));
  if (turn.reward) tags.push(el("span", { class: "tag" }, `reward ${turn.reward}`));
  if (detail.ended) tags.push(el("span", { class: "tag" }, `ended: ${detail.ended}`));
  tags.push(...detailTags(detail));
  if (info.success) tags.push(el("span", { class: "tag good" }, "solved"));
  tags.push(el("span", { class: "soft" }, `${number(turn.tokens)} tokens${turn.counter ? ` (${turn.counter})` : " (estimated)"}, ${number(turn.shown)} messages`));
  if (info.usage) tags.push(el("span", { class: "soft" }, usageText(info.usage)));
  return el("div", { class: "tags" }, tags);
}

/** The usage of one reply, as the model's server counted. */
function usageText({ prompt_tokens, completion_tokens, seconds }) {
  const tokens = prompt_tokens === undefined ? "" : `${number(prompt_tokens)} prompt and ${number(completion_tokens)} reply tokens, `;
  return `model: ${tokens}${number(rounded(seconds))} s`;
}

function editLines(edits) {
  return edits.map((edit) => el("p", { class: "warn" }, `${edit.strategy}: ${edit.messages} messages edited, -${number(edit.removed)} +${number(edit.inserted)} tokens`));
}

function bestBlock(turn) {
  if (turn.best === undefined) return null;
  if (turn.best === null) return el("p", { class: "soft" }, "This world does not define optimal calls here.");
  const { count, calls } = turn.best;
  if (!count) return el("p", { class: "bad" }, "The task can no longer be solved.");
  return [calls.map((call) => callBlock(call, "")), count > calls.length && el("p", { class: "soft" }, `and ${number(count - calls.length)} more`)];
}

// Panels {title, draw}, for files that add one. `draw(view, place)` returns elements or null; the place
// is null on the page of a team.
const PANELS = [];

function panelBlocks(view, place) {
  return PANELS.flatMap(({ title, draw }) => section(title, draw(view, place)));
}

function section(title, ...content) {
  return content.flat(Infinity).some(Boolean) ? [el("h3", {}, title), ...content] : [];
}

/** One turn, or the final observation. */
function turnDetail(view, place, needle) {
  const turn = view.turns[place];
  if (!turn) {
    return el("div", {}, el("h2", {}, "After the last reply"), editLines(view.end.edits), section("Chat", chatBlock(view, place, needle)), reportBlock(view), aboutBlock(view));
  }
  const detail = turn.info.detail || {};
  const nested = (detail.nested || []).map((call) => [callBlock(call, needle), folded("result (hidden from the policy)", call.result, needle)]);
  const entries = (numbers) => numbers.map((m) => messageBlock({ message: view.messages[m], mark: "", isNew: false }, needle));
  const faults = (detail.faults || []).map((fault) => folded(`${fault.tool}: ${fault.exception}: ${fault.message}`, fault.traceback, ""));
  return el("div", {},
    el("h2", {}, `Turn ${place + 1} of ${view.turns.length}${turn.agent ? `, ${turn.agent}` : ""}`),
    turnTags(turn),
    view.note && el("p", { class: "warn" }, view.note),
    section("Observation", editLines(turn.edits), chatBlock(view, place, needle)),
    section("Reply", replyBlock(turn, needle)),
    section("Optimal calls", bestBlock(turn)),
    section("Results", turn.results.length ? entries(turn.results) : el("p", { class: "soft" }, "none")),
    section("Hidden results", entries(turn.hidden || [])),
    section("Calls from code", nested),
    section("Environment faults", faults),
    panelBlocks(view, place),
    place === view.turns.length - 1 && reportBlock(view),
    place === 0 && aboutBlock(view));
}

function reportBlock(view) {
  const last = view.turns[view.turns.length - 1];
  const report = last && (last.info.detail || {}).report;
  return [view.failure && el("p", { class: "warn" }, view.failure), report && section("World report", el("pre", {}, JSON.stringify(report, null, 2)))];
}

function aboutBlock(view) {
  return [
    section("Tools", view.tools.map((tool) => folded(tool.name, `${tool.description}\n\n${JSON.stringify(tool.parameters, null, 2)}`, ""))),
    section("Environment", folded("spec", JSON.stringify(view.spec, null, 2), ""), folded("run labels", JSON.stringify(view.labels, null, 2), "")),
  ];
}
