// DOM helpers. All text becomes text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** Create an element with attributes and children (text, elements or nothing). */
function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A text with its search matches highlighted. */
function marked(text, needle) {
  if (!needle) return [text];
  const parts = [];
  const lower = text.toLowerCase();
  // Some letters have a longer lower case, which would shift the offsets; such texts stay unmarked.
  if (lower.length !== text.length) return [text];
  let from = 0;
  for (let at = lower.indexOf(needle); at >= 0 && parts.length < 400; at = lower.indexOf(needle, from)) {
    parts.push(text.slice(from, at), el("mark", {}, text.slice(at, at + needle.length)));
    from = at + needle.length;
  }
  parts.push(text.slice(from));
  return parts;
}

/** A list of rows of equal height that renders only the visible ones. */
class Rows {
  constructor(height, make, label) {
    this.height = height;
    this.make = make;
    this.items = [];
    this.selected = 0;
    this.space = el("div", { class: "space" });
    this.element = el("div", { class: "scroll", role: "listbox", "aria-label": label, tabindex: 0 }, this.space);
    this.element.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  show(items, selected) {
    this.items = items;
    this.selected = Math.max(0, Math.min(selected, items.length - 1));
    this.space.style.height = `${items.length * this.height}px`;
    this.draw();
  }

  select(place) {
    this.selected = Math.max(0, Math.min(place, this.items.length - 1));
    const top = this.selected * this.height;
    const box = this.element;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + this.height > box.scrollTop + box.clientHeight) {
      box.scrollTop = top + this.height - box.clientHeight;
    }
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / this.height) - 5);
    const last = Math.min(this.items.length, first + Math.ceil(this.element.clientHeight / this.height) + 10);
    const rows = [];
    for (let k = first; k < last; k++) {
      const row = this.make(this.items[k], k);
      row.classList.add("row");
      row.style.top = `${k * this.height}px`;
      row.style.height = `${this.height}px`;
      row.setAttribute("role", "option");
      row.setAttribute("aria-selected", k === this.selected);
      rows.push(row);
    }
    this.space.replaceChildren(...rows);
  }
}

const OUTCOME_CLASSES = { solved: "good", lost: "bad", broken: "warn", damaged: "warn" };

function outcomeTag(outcome) {
  return el("span", { class: `tag ${OUTCOME_CLASSES[outcome] || "warn"}` }, outcome);
}

function number(value) {
  return value === null || value === undefined ? "" : value.toLocaleString("en", { maximumSignificantDigits: 15 });
}

function percent(value) {
  return value === null || value === undefined ? "" : `${Math.round(100 * value)} %`;
}

/** A number with three decimals, or with three digits if it is small. */
function rounded(value) {
  if (value === null || value === undefined) return value;
  return Math.abs(value) < 0.1 ? Number(value.toPrecision(3)) : Math.round(1000 * value) / 1000;
}
