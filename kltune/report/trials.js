// One trial in a dialog: from a point of a chart, a row of a table, or the address (#trial-7).
let sheets = null;
let sheet = null;
let shownTrial = null;

function readSheets() {
  if (sheets === null) {
    const data = find("#sheets");
    sheets = data ? JSON.parse(data.textContent) : {};
  }
  return sheets;
}

const numberInAddress = () => {
  const found = location.hash.match(/^#trial-(\d+)$/);
  return found ? Number(found[1]) : null;
};
const addressOf = (number) => `${location.pathname}${location.search}${number === null ? "" : `#trial-${number}`}`;

// In the order of the table as it is sorted and filtered now; by number where it isn't in there.
function neighbours(number) {
  const rows = findAll(".trials tbody tr:not([hidden])[id]").map((row) => Number(row.id.slice(6)));
  const known = rows.filter((found) => found in readSheets());
  const all = known.includes(number) ? known : Object.keys(readSheets()).map(Number).sort((a, b) => a - b);
  const place = all.indexOf(number);
  return { before: all[place - 1], after: all[place + 1] };
}

function line(curves, x, y, name, colour, more = {}) {
  const ys = curves[y];
  if (!curves[x] || !ys || !ys.some((value) => value !== null)) return null;
  return { type: "scatter", mode: "lines", x: curves[x], y: ys, name, line: { color: colour, width: 1.8 }, ...more };
}

function band(se) {
  return se && se.some((value) => value !== null) ? { type: "data", array: se, thickness: 1, width: 2 } : undefined;
}

// Gold and proxy in one chart, KL and beta in the other: told apart by colour, dash and marker.
function sheetCharts(data) {
  const curves = data.curves || {};
  const named = (name, unit) => (unit ? `${name} (${unit})` : name);
  const scores = [
    line(curves, "eval_step", "gold", "gold", "#0d9488", { mode: "lines+markers", error_y: band(curves.gold_se), marker: { symbol: "circle", size: 6 } }),
    line(curves, "eval_step", "proxy", "proxy", "#8b5cf6", { mode: "lines+markers", yaxis: "y2", error_y: band(curves.proxy_se), marker: { symbol: "diamond-open", size: 7 }, line: { color: "#8b5cf6", dash: "dot", width: 1.8 } }),
  ].filter(Boolean);
  const costs = [
    line(curves, "step", "kl", "KL, training", "#3b82f6"),
    line(curves, "step", "target", "target of KL", "#1e40af", { line: { color: "#1e40af", dash: "dot", width: 1.4 } }),
    line(curves, "eval_step", "eval_kl", "KL, select", "#3b82f6", { mode: "markers", marker: { symbol: "square-open", size: 7, color: "#3b82f6" } }),
    line(curves, "step", "beta", "beta", "#d97706", { yaxis: "y2", line: { color: "#d97706", dash: "dash", width: 1.8 } }),
  ].filter(Boolean);
  const axes = (left, right, more) => ({
    hovermode: "x unified", margin: { l: 48, r: 48, t: 8, b: 36 }, xaxis: { title: { text: "step" } },
    yaxis: { title: { text: left }, ...more }, yaxis2: { title: { text: right }, overlaying: "y", side: "right", showgrid: false, ...more },
  });
  return [
    { data: scores, layout: axes("gold", "proxy"), label: "Gold and proxy by step, ± one standard error" },
    { data: costs, layout: axes(named("KL", data.kl_unit), named("beta", data.beta_unit), { rangemode: "tozero" }), label: "KL and beta by step" },
  ].filter((chart) => chart.data.length);
}

async function drawSheet(number) {
  const place = find(".curves", sheet);
  const charts = sheetCharts(readSheets()[number]);
  const boxes = charts.map((chart) => make("div", { class: "plot", role: "img", "aria-label": chart.label }));
  place.replaceChildren(...boxes);
  place.classList.toggle("empty", !charts.length);
  try {
    const library = await plotly();
    for (const [index, chart] of charts.entries()) {
      if (shownTrial !== number || !boxes[index].isConnected) return;
      const ready = dressed(JSON.stringify(chart), 290, boxes[index].clientWidth < 360);
      await library.react(boxes[index], ready.data, ready.layout, { ...plotConfig, displayModeBar: false });
    }
  } catch {
    place.replaceChildren(make("p", { class: "note" }, "The curves can't be drawn in this browser; the table has their ends."));
  }
}

function buildSheet() {
  const button = (name, label, onClick) => {
    const made = make("button", { type: "button", "aria-label": label, title: label }, name);
    made.addEventListener("click", onClick);
    return made;
  };
  const before = button("\u2190 Previous", "Previous trial", () => step("before"));
  const after = button("Next \u2192", "Next trial", () => step("after"));
  const close = button("Close", "Close (Escape)", () => sheet.close());
  before.className = "before";
  after.className = "after";
  sheet = make("dialog", { id: "sheet", "aria-labelledby": "sheet-title" },
    make("div", { class: "head" }, make("h2", { id: "sheet-title", tabindex: "-1" }), make("div", { class: "tools" }, before, after, close)),
    make("div", { class: "inside" }, make("div", { class: "curves" }), make("dl", { class: "facts" }), make("div", { class: "commands" })));
  document.body.append(sheet);
  sheet.addEventListener("close", () => {
    shownTrial = null;
    if (numberInAddress() !== null) history.replaceState(null, "", addressOf(null));
  });
  sheet.addEventListener("click", (event) => { if (event.target === sheet) sheet.close(); });
  sheet.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("pre")) return;
    if (event.key === "ArrowLeft") step("before");
    if (event.key === "ArrowRight") step("after");
  });
  onTheme.push(() => { if (shownTrial !== null) drawSheet(shownTrial); });
}

function step(direction) {
  const next = neighbours(shownTrial)[direction];
  if (next !== undefined) openTrial(next);
}

function fillSheet(number) {
  const data = readSheets()[number];
  find("h2", sheet).textContent = data.title;
  find(".facts", sheet).replaceChildren(...data.facts.map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, make("bdi", { dir: "auto" }, value)))));
  const commands = find(".commands", sheet);
  commands.replaceChildren(...(data.commands.length ? [make("h3", {}, "Commands")] : []), ...data.commands.map(codeBlock));
  const beside = neighbours(number);
  find(".before", sheet).disabled = beside.before === undefined;
  find(".after", sheet).disabled = beside.after === undefined;
}

// False where there is no such trial.
function openTrial(number, isFromAddress = false) {
  if (!(number in readSheets())) return false;
  if (!sheet) buildSheet();
  if (shownTrial === number) return true;
  const wasOpen = sheet.open;
  shownTrial = number;
  fillSheet(number);
  if (!isFromAddress) history[wasOpen ? "replaceState" : "pushState"](null, "", addressOf(number));
  if (!wasOpen) sheet.showModal();
  sheet.scrollTop = 0;
  find("h2", sheet).focus({ preventScroll: true });
  drawSheet(number);
  return true;
}

function followAddress() {
  const number = numberInAddress();
  if (number !== null) openTrial(number, true); else if (sheet && sheet.open) sheet.close();
}

if (find("#sheets")) {
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#trial-"]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (openTrial(Number(link.getAttribute("href").slice(7)))) event.preventDefault();
  });
  addEventListener("popstate", followAddress);
  followAddress();
}
