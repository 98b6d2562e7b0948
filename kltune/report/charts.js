// Each picture that has data becomes a chart when it comes near; where that fails the picture stays.
let library = null;

async function inflate(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

// plotly.js, once; its own element with its own text, which the page's policy names by its hash.
function plotly() {
  library ||= (async () => {
    const packed = find("#plotly");
    if (!packed) throw new Error("no library on this page");
    const element = make("script");
    element.textContent = await inflate(packed.textContent);
    document.head.append(element);
    if (!window.Plotly) throw new Error("the library did not start");
    return window.Plotly;
  })();
  return library;
}

const isTouch = matchMedia("(pointer: coarse)").matches;

function axisLook(axis, name, tone) {
  const isY = name.startsWith("yaxis");
  // Ticks of a second axis are its own round numbers, not those beside the first one's.
  const ticks = axis.overlaying && !axis.tickvals ? { tickmode: "auto" } : {};
  return {
    gridcolor: tone.line, linecolor: tone.soft, tickcolor: tone.soft, zerolinecolor: tone.line,
    showline: true, ticks: "outside", ticklen: 4, automargin: true, zeroline: false,
    exponentformat: "power", ...ticks, ...axis,
    title: { standoff: isY ? 8 : 10, font: { size: 12 }, ...(typeof axis.title === "string" ? { text: axis.title } : axis.title) },
  };
}

// A chart with the page's colours and fonts beneath its own layout.
function dressed(source, height, isNarrow) {
  const tone = colours();
  const text = source.replaceAll("#010203", tone.ink).replaceAll("#010204", tone.paper);
  const chart = JSON.parse(text);
  const own = chart.layout || {};
  const layout = {
    height, hovermode: "closest", dragmode: isTouch ? false : "zoom",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    ...own,
    font: { family: "system-ui, sans-serif", size: 12, color: tone.ink, ...own.font },
    margin: { l: 48, r: 12, t: 12, b: 40, ...own.margin },
    hoverlabel: { bgcolor: tone.panel, bordercolor: tone.soft, font: { color: tone.ink }, align: "left", ...own.hoverlabel },
    legend: { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)", ...own.legend },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: tone.soft, activecolor: tone.ink, orientation: "h", ...own.modebar },
  };
  for (const name of new Set(["xaxis", "yaxis", ...Object.keys(own).filter((key) => /^[xy]axis\d*$/.test(key))])) {
    layout[name] = axisLook(own[name] || {}, name, tone);
  }
  if (isNarrow) layout.font.size = Math.min(layout.font.size, 11);
  return { data: chart.data, layout };
}

const plotConfig = {
  responsive: true, displaylogo: false, scrollZoom: false, doubleClick: "reset", showTips: false,
  modeBarButtons: [["toImage", "resetScale2d"]], displayModeBar: isTouch ? false : "hover",
  toImageButtonOptions: { format: "png", scale: 2 },
};

// The trial of a clicked point: its customdata, or the first of it.
function trialOf(point) {
  const data = Array.isArray(point.customdata) ? point.customdata[0] : point.customdata;
  return Number.isInteger(data) ? data : null;
}

async function draw(figure) {
  const picture = find(".picture", figure);
  const source = find("script.chart", figure).textContent;
  const width = figure.clientWidth;
  const height = Math.round(Math.min(620, Math.max(width < 500 ? 340 : 320, picture.offsetHeight)));
  const library = await plotly();
  const label = find("figcaption", figure).textContent;
  const place = figure.plot || make("div", { class: "plot", role: "group", "aria-label": label });
  if (!figure.plot) picture.after(place);
  figure.classList.add("drawn");
  try {
    const chart = dressed(source, figure.plotHeight || height, width < 500);
    await library.react(place, chart.data, chart.layout, plotConfig);
  } catch (failure) {
    figure.classList.remove("drawn");
    place.remove();
    throw failure;
  }
  if (figure.plot) return;
  figure.plot = place;
  figure.plotHeight = height;
  place.on("plotly_click", (event) => {
    const number = event.points.map(trialOf).find((found) => found !== null);
    if (number !== undefined) openTrial(number);
  });
}

// One chart at a time, so that the page answers between two of them.
let drawing = Promise.resolve();
function drawSoon(figure) {
  drawing = drawing
    .then(() => new Promise((resume) => { setTimeout(resume, 0); }))
    .then(() => draw(figure))
    .catch(() => { figure.dataset.failed = ""; });
}

const liveFigures = findAll("figure.interactive");
// Bytes of data from which drawing takes long enough to be felt: such a chart waits until the
// reader has stopped at it; the picture is there all the while.
const HEAVY = 60000;
const DWELL_MS = 300;

function watchFigures(figures, margin, dwell) {
  const waiting = new Map();
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      clearTimeout(waiting.get(target));
      if (!isIntersecting) continue;
      waiting.set(target, setTimeout(() => { near.unobserve(target); drawSoon(target); }, dwell));
    }
  }, { rootMargin: `${margin}px 0px` });
  for (const figure of figures) near.observe(figure);
}

if (liveFigures.length && "IntersectionObserver" in window && "DecompressionStream" in window) {
  const isHeavy = (figure) => find("script.chart", figure).textContent.length > HEAVY;
  watchFigures(liveFigures.filter((figure) => !isHeavy(figure)), 300, 0);
  watchFigures(liveFigures.filter(isHeavy), 0, DWELL_MS);
  onTheme.push(() => { for (const figure of liveFigures) if (figure.plot) drawSoon(figure); });
}
