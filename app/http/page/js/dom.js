// Elements from values. Text only ever becomes text: nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element; `attributes` may hold `class`, `data-*`, ARIA, and properties such as `value`. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for pictures. */
export function shape(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") {
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    } else if (key === "colour") {
      made.style.backgroundColor = value;
    } else {
      made.setAttribute(key, value === true ? "" : String(value));
    }
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

export const place = (id) => document.getElementById(id);

/** A card's title, which names its section for assistive technology. */
export function title(id, text) {
  return element("h2", { id: `${id}-title` }, text);
}

/** A table of rows; a cell is text, an element, or `{ number: text }` set to the right. */
export function table(caption, heads, rows) {
  const cell = (name, value) => {
    const isNumber = value !== null && typeof value === "object" && "number" in value;
    const scope = name === "th" ? "col" : null;
    return element(name, { class: isNumber ? "number" : null, scope }, isNumber ? value.number : value);
  };
  return element("table", { class: "terms", "aria-label": caption },
    element("thead", {}, element("tr", {}, heads.map((head) => cell("th", head)))),
    element("tbody", {}, rows.map((row) => element("tr", {}, row.map((value) => cell("td", value))))));
}

/** A button that copies what `text` gives, and says so. */
export function copyButton(label, text) {
  const button = element("button", { type: "button" }, label);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "The browser forbids copying";
    }
    setTimeout(() => { button.textContent = label; }, 1600);
  });
  return button;
}
