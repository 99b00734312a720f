"use strict";
/* The scripts of the page share one scope and run in the order of page.py. Text goes in through textContent and
   attributes only, never as markup. This one holds the data, the colours and the figures of Plotly. */
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const dark = window.matchMedia("(prefers-color-scheme: dark)");

/* ---- colours: "var(--x)" and "mix(--a,--b,t,alpha)" in a figure are colours of the present scheme ---- */
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
const mix = (a, b, t, alpha = 1) => {
  const [x, y] = [rgb(css(a)), rgb(css(b))];
  return `rgba(${x.map((v, k) => Math.round(v + (y[k] - v) * t)).join(",")},${alpha})`;
};
const colour = (text) => {
  let found = /^var\((--[\w-]+)\)$/.exec(text);
  if (found) return css(found[1]);
  found = /^mix\((--[\w-]+),(--[\w-]+),([\d.]+),([\d.]+)\)$/.exec(text);
  return found ? mix(found[1], found[2], Number(found[3]), Number(found[4])) : text;
};
const painted = (value) => {
  if (typeof value === "string") return colour(value);
  if (Array.isArray(value)) return typeof value[value.length - 1] === "number" ? value : value.map(painted);
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, painted(item)]));
  return value;
};

/* ---- figures ---- */
const axis = (own) => ({
  gridcolor: css("--line"), zerolinecolor: css("--line"), linecolor: css("--faint"), automargin: true,
  tickfont: { size: 12 }, fixedrange: window.innerWidth < 720, ...own,
  title: { font: { size: 12, color: css("--soft") }, ...(own && own.title) },
});
const layoutOf = (own) => ({
  height: 330, margin: { l: 52, r: 12, t: own.legend && own.showlegend !== false ? 44 : 12, b: 44 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
  font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: css("--ink") },
  hoverlabel: { bgcolor: css("--panel"), bordercolor: css("--faint"), font: { color: css("--ink") } },
  dragmode: window.innerWidth < 720 ? false : "zoom",
  ...own, xaxis: axis(own.xaxis), yaxis: axis(own.yaxis),
});
const config = () => ({
  responsive: true, displaylogo: false, displayModeBar: false,
});

let showHead = () => {}; /* the graph of a head, once graph.js has run */
const drawSection = (section) => {
  const key = section.dataset.section;
  const choice = {};
  section.querySelectorAll("select[data-control]").forEach((s) => { choice[s.dataset.control] = s.value; });
  section.querySelectorAll("[data-figure]").forEach((place) => {
    const figure = data[key].figures[place.dataset.figure];
    const variant = figure.by.map((name) => choice[name]).join("|");
    const spec = painted(figure.variants[variant]);
    if (window.innerWidth < 720) /* a scale beside the map would take a third of a phone */
      spec.data.filter((trace) => trace.colorbar).forEach((trace) => {
        Object.assign(trace.colorbar, { orientation: "h", y: 1, yanchor: "bottom", thickness: 10, title: { ...trace.colorbar.title, side: "top" } });
        spec.layout.margin = { l: 40, r: 8, t: 74, b: 44 };
      });
    place.dataset.variant = variant;
    const layout = layoutOf(spec.layout);
    place.style.minHeight = `${layout.height}px`;
    Plotly.react(place, spec.data, layout, config());
    if (key === "heads" && data.graph && !place.dataset.clickable) {
      place.dataset.clickable = "yes";
      place.on("plotly_click", ({ points }) => showHead(Number(section.querySelector("[data-control=model]")?.value || 0), points[0].y, points[0].x));
    }
  });
};
const sections = [...document.querySelectorAll("[data-section]")];
sections.forEach((section) => {
  section.querySelectorAll("select[data-control]").forEach((s) => s.addEventListener("change", () => drawSection(section)));
});
