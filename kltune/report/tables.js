// Tables: a click on a column's name sorts by it, a box filters the table of all trials.
const DURATION = { s: 1, min: 60, h: 3600, d: 86400 };
const collator = new Intl.Collator("en");
const DECIMAL = /(\d+(?:\.\d+)?(?:e[+-]?\d+)?)/i;

// Words by words, numbers by their value: 0.12 comes before 0.5 and 9 before 10.
function compareTexts(first, second) {
  const [a, b] = [first.split(DECIMAL), second.split(DECIMAL)];
  for (let place = 0; place < Math.min(a.length, b.length); place += 1) {
    const order = place % 2 ? Number(a[place]) - Number(b[place]) : collator.compare(a[place], b[place]);
    if (order) return order;
  }
  return a.length - b.length;
}

// The number that a cell starts with, a duration in seconds; null where there is none.
function numberOf(text) {
  const plain = text.trim().replaceAll("\u2212", "-").replace(/(\d),(?=\d{3})/g, "$1");
  const parts = [...plain.matchAll(/(\d+(?:\.\d+)?) (s|min|h|d)(?![a-z])/g)];
  if (parts.length && /^\d/.test(plain)) {
    return parts.reduce((sum, [, count, unit]) => sum + Number(count) * DURATION[unit], 0);
  }
  const found = plain.match(/^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?/i);
  return found ? Number(found[0]) : null;
}

function sortRows(body, rows, place, direction) {
  let sorted = rows;
  if (direction) {
    const keyed = rows.map((row, index) => {
      const text = row.cells[place].textContent;
      return { row, index, text, number: numberOf(text) };
    });
    const isNumeric = keyed.some((k) => k.number !== null) && keyed.every((k) => k.number !== null || /^\W*$/.test(k.text));
    const key = (k) => (isNumeric ? k.number : /^[–-]?$/.test(k.text.trim()) ? null : k.text);
    keyed.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === null || y === null) return (x === null) - (y === null) || a.index - b.index;
      const order = isNumeric ? x - y : compareTexts(x, y);
      return direction * order || a.index - b.index;
    });
    sorted = keyed.map((k) => k.row);
  }
  body.append(...sorted);
}

function makeSortable(table) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => {
    const button = make("button", { type: "button", class: "sort" }, ...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      // Up, down, then the order of the report again.
      const next = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")];
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", next);
      sortRows(body, rows, place, { none: 0, ascending: 1, descending: -1 }[next]);
    });
  });
}

function makeFilter(region) {
  const table = find("table", region);
  const rows = [...table.tBodies[0].rows];
  const texts = rows.map((row) => [...row.cells].map((cell) => cell.textContent).join("\n").toLowerCase());
  const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim().toLowerCase());
  const place = names.indexOf("state");
  const states = place < 0 ? [] : rows.map((row) => row.cells[place].textContent.split(";")[0].trim());
  const box = make("input", { type: "search", placeholder: "part of a setting, a number, a reason", "aria-label": "Filter the trials" });
  const choice = make("select", { "aria-label": "State of the trials" }, make("option", { value: "" }, "any state"));
  for (const state of [...new Set(states)].sort()) choice.append(make("option", { value: state }, state));
  const count = make("span", { role: "status", class: "note" });
  function apply() {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, index) => {
      const isShown = (!choice.value || states[index] === choice.value) && words.every((word) => texts[index].includes(word));
      if (row.hidden === isShown) row.hidden = !isShown;
      shown += isShown;
    });
    count.textContent = shown === rows.length ? `${rows.length} trials` : `${shown} of ${rows.length} trials`;
    memory.write("sessionStorage", "kltune-filter", JSON.stringify([box.value, choice.value]));
  }
  let isDue = false;
  box.addEventListener("input", () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => { isDue = false; apply(); });
  });
  choice.addEventListener("change", apply);
  const bar = make("div", { class: "filter" }, make("label", {}, "Filter ", box));
  if (choice.options.length > 2) bar.append(choice);
  bar.append(count);
  region.before(bar);
  // Only a live page comes back to the same reader: it reloads by itself.
  if (document.body.hasAttribute("data-live")) {
    try {
      [box.value, choice.value] = JSON.parse(memory.read("sessionStorage", "kltune-filter")) || ["", ""];
    } catch { box.value = ""; }
  }
  apply();
}

for (const table of findAll("main table")) {
  if (table.tHead && table.tBodies.length && table.tBodies[0].rows.length > 2) makeSortable(table);
}
for (const region of findAll(".scroll.trials")) makeFilter(region);
