// Token chart: tokens per turn with axes, the context window and context edits.

const WIDTH = 1000;
const HEIGHT = 100;

/** Up to `most` round steps from 0 to the top of an axis. */
function ticks(top, most) {
  const rough = top / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, power * [1, 2, 5, 10].find((factor) => factor * power >= rough));
  return Array.from({ length: Math.floor(top / step) + 1 }, (_, k) => k * step);
}

function tokenChart(view, current, open) {
  const most = Math.max(1, ...view.turns.map((turn) => turn.tokens));
  // A much larger window would flatten the curve, so the legend alone mentions it.
  const inSight = view.window && view.window <= 4 * most;
  const top = 1.08 * (inSight ? Math.max(most, view.window) : most);
  const x = (k) => (WIDTH * (k + 0.5)) / view.turns.length;
  const y = (tokens) => HEIGHT * (1 - tokens / top);
  const levels = ticks(top, 4);
  const parts = levels.map((level) => svg("line", { class: "level", x1: 0, x2: WIDTH, y1: y(level), y2: y(level) }));
  for (const agent of new Set(view.turns.map((turn) => turn.agent))) {
    const points = [];
    view.turns.forEach((turn, k) => {
      if (turn.agent === agent) points.push(`${x(k).toFixed(1)},${y(turn.tokens).toFixed(1)}`);
    });
    // A polyline needs two points.
    if (points.length === 1) points.unshift(points[0].replace(/^[^,]+/, "0"));
    parts.push(svg("polyline", { class: "curve", points: points.join(" ") }));
  }
  view.turns.forEach((turn, k) => {
    if (turn.edits.length) parts.push(svg("line", { class: "edit", x1: x(k), x2: x(k), y1: y(turn.tokens), y2: HEIGHT }));
  });
  if (inSight) parts.push(svg("line", { class: "limit", x1: 0, x2: WIDTH, y1: y(view.window), y2: y(view.window) }));
  parts.push(svg("line", { class: "now", x1: x(current), x2: x(current), y1: 0, y2: HEIGHT }));
  const title = `Prompt tokens per turn, max ${number(most)}`;
  const chart = svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title }, parts);
  chart.addEventListener("click", (event) => {
    const box = chart.getBoundingClientRect();
    open(Math.floor((view.turns.length * (event.clientX - box.left)) / box.width));
  });
  const tokenAxis = levels.map((level) => placed(el("span", {}, number(level)), "top", y(level)));
  const shownTurns = new Set(ticks(view.turns.length, 8).map((k) => Math.max(1, k)));
  const turnAxis = [...shownTurns].map((k) => placed(el("span", {}, number(k)), "left", (100 * x(k - 1)) / WIDTH));
  return [el("div", { class: "plot" }, el("div", { class: "token-axis" }, tokenAxis), chart, el("div", { class: "turn-axis" }, turnAxis)), legend(view, most, inSight)];
}

/** Place an element at a percentage; the page's policy forbids style attributes. */
function placed(element, side, share) {
  element.style[side] = `${share}%`;
  return element;
}

function legend(view, most, inSight) {
  const estimated = view.turns.some((turn) => !turn.counter);
  const edits = view.turns.reduce((sum, turn) => sum + turn.edits.length, 0);
  return el("div", { class: "legend" },
    el("span", {}, el("i"), `prompt tokens by turn, max ${number(most)}${estimated ? " (estimated)" : ""}`),
    view.window && el("span", {}, el("i", { class: "limit" }), `context window: ${number(view.window)}${inSight ? "" : " (off scale)"}`),
    edits > 0 && el("span", {}, el("i", { class: "edit" }), `${edits} context edits`));
}
