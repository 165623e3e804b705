// The knowledge panel: each call or message of a team, with the turn from which each seat knew it.

// Facts shown initially, and characters of a fact before it is unfolded.
const FACTS_AT_FIRST = 10;
const FACT_LENGTH = 120;

function turnLink(view, place, label) {
  const name = place < view.turns.length ? String(place + 1) : "end";
  return el("a", { href: writeAddress({ ...state.address, team: false, turn: place + 1 }), "aria-label": `${label} ${name}` }, name);
}

function factText(view, fact) {
  const call = view.turns[fact.turn].reply.calls[fact.number];
  const text = callText(call);
  const result = fact.result === null ? "" : view.messages[fact.result].parts[0][1];
  const title = text.length > FACT_LENGTH ? `${text.slice(0, FACT_LENGTH)}…` : text;
  const part = (name, content) => content && [el("b", {}, name), textBlock(content, "")];
  // Answers to a host's guesser and moves of a match are always reworded.
  const garbled = fact.arrived && ["tell", "delegate", "report"].includes(call.name) && el("span", { class: "tag mark" }, "changed on the way");
  return el("details", {}, el("summary", {}, el("b", {}, fact.agent), " ", el("code", {}, title), " ", garbled),
    part("call", text), part("result", result), part("as others read it", fact.arrived));
}

function seatCell(view, fact, seat, place) {
  const known = fact.known[seat];
  if (known === undefined) return el("td", { class: "soft" }, "–");
  const cell = el("td", { class: known === place ? "known current" : "known" }, turnLink(view, known, `${seat} from turn`));
  cell.style.setProperty("--from", `${(100 * known) / view.turns.length}%`);
  return cell;
}

function factRow(view, fact, seats, place) {
  return el("tr", {},
    el("td", { class: "number" }, turnLink(view, fact.turn, "made at turn")),
    el("td", {}, factText(view, fact)),
    seats.map((seat) => seatCell(view, fact, seat, place)));
}

function knowledgeTable(view, place) {
  const facts = view.knowledge.filter((fact) => place === null || fact.turn <= place);
  const seats = [...new Set(view.turns.map((turn) => turn.agent))];
  const heads = ["turn", "call or message", ...seats].map((name) => el("th", {}, name));
  const body = el("tbody");
  const earlier = el("button", { class: "earlier" });
  let first = facts.length;
  const show = (count) => {
    const from = Math.max(0, first - count);
    body.prepend(...facts.slice(from, first).map((fact) => factRow(view, fact, seats, place)));
    first = from;
    earlier.textContent = `show earlier facts (${number(first)} hidden)`;
    earlier.hidden = first === 0;
  };
  earlier.addEventListener("click", () => show(MORE));
  show(FACTS_AT_FIRST);
  return [
    el("p", { class: "soft" }, "The number is the turn from which a seat knew a fact, and its bar covers the rest of the episode. A dash marks a fact that the seat was never shown."),
    earlier,
    el("div", { class: "sideways" }, el("table", { class: "facts" }, el("thead", {}, el("tr", {}, heads)), body)),
  ];
}

PANELS.push({
  title: "Who knew what when",
  draw: (view, place) => {
    if (!(view.knowledge || []).length) return null;
    if (place !== null) return knowledgeTable(view, place);
    return el("details", { class: "unfolds" }, el("summary", {}, "facts of the episode"), knowledgeTable(view, place));
  },
});
