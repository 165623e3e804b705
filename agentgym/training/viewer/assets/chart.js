// The tokens of the chat over the turns, the window, and where the context was edited.

const WIDTH = 1000;
const HEIGHT = 100;

function tokenChart(view, current, open) {
  const most = Math.max(1, ...view.turns.map((turn) => turn.tokens));
  // A window that is far away would press the curve to the ground, so it is then only named.
  const inSight = view.window && view.window <= 4 * most;
  const top = 1.08 * (inSight ? Math.max(most, view.window) : most);
  const x = (k) => (WIDTH * (k + 0.5)) / Math.max(1, view.turns.length);
  const y = (tokens) => HEIGHT * (1 - tokens / top);
  const parts = [];
  for (const agent of new Set(view.turns.map((turn) => turn.agent))) {
    const points = [];
    view.turns.forEach((turn, k) => {
      if (turn.agent === agent) points.push(`${x(k).toFixed(1)},${y(turn.tokens).toFixed(1)}`);
    });
    // A single point is no line.
    if (points.length === 1) points.unshift(points[0].replace(/^[^,]+/, "0"));
    parts.push(svg("polyline", { class: "curve", points: points.join(" ") }));
  }
  view.turns.forEach((turn, k) => {
    if (turn.edits.length) parts.push(svg("line", { class: "edit", x1: x(k), x2: x(k), y1: y(turn.tokens), y2: HEIGHT }));
  });
  if (inSight) parts.push(svg("line", { class: "limit", x1: 0, x2: WIDTH, y1: y(view.window), y2: y(view.window) }));
  parts.push(svg("line", { class: "now", x1: x(current), x2: x(current), y1: 0, y2: HEIGHT }));
  const title = `Tokens of the chat, at most ${number(most)}`;
  const chart = svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title }, parts);
  chart.addEventListener("click", (event) => {
    const box = chart.getBoundingClientRect();
    open(Math.floor((view.turns.length * (event.clientX - box.left)) / box.width));
  });
  return [chart, legend(view, most, inSight)];
}

function legend(view, most, inSight) {
  const estimated = view.turns.some((turn) => !turn.counter);
  const edits = view.turns.reduce((sum, turn) => sum + turn.edits.length, 0);
  return el("div", { class: "legend" },
    el("span", {}, el("i"), `tokens shown, at most ${number(most)}${estimated ? " (estimated)" : ""}`),
    view.window && el("span", {}, el("i", { class: "limit" }), `window of ${number(view.window)}${inSight ? "" : ", far above"}`),
    edits > 0 && el("span", {}, el("i", { class: "edit" }), `${edits} edits of the context`));
}
