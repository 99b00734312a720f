"use strict";
/* The attention graph of an example. */
const graph = () => {
  const root = document.querySelector("[data-graph]");
  if (!root) return null;
  const { examples, weight_unit: weightUnit, kappa_unit: kappaUnit, models } = data.graph;
  const control = (name) => root.querySelector(`[data-graph-control="${name}"]`);
  const output = (name) => root.querySelector(`[data-graph-output="${name}"]`);
  const frame = root.querySelector("[data-graph-frame]");
  const body = root.querySelector(".graph-body");
  const make = (tag, attributes, text) => {
    const element = document.createElementNS(SVG, tag);
    Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
    if (text !== undefined) element.textContent = text;
    return element;
  };
  examples.forEach((example, k) => {
    const option = document.createElement("option");
    option.value = String(k);
    const words = example.grid ? "" : `: ${example.tokens.filter((_, i) => example.valid[i]).slice(0, 8).join(" ")}`;
    option.textContent = `${models.length > 1 ? `${models[example.model]}, ` : ""}sample ${example.sample}${words}`;
    if (option.textContent.length > 40) option.textContent = `${[...option.textContent].slice(0, 39).join("")}…`;
    control("example").append(option);
  });

  const edgesOf = (example, layer, head) => {
    const flat = example.edges[layer][head] || [];
    const edges = [];
    for (let k = 0; k < flat.length; k += 4)
      edges.push({ id: k / 4, i: flat[k], j: flat[k + 1], weight: flat[k + 2] * weightUnit,
        kappa: flat[k + 3] === null ? null : flat[k + 3] * kappaUnit });
    return edges;
  };
  const shade = (kappa) => {
    if (kappa === null) return css("--faint");
    const t = Math.min(1, Math.abs(kappa));
    return mix("--zero", kappa < 0 ? "--below" : "--above", t);
  };
  const number = (value, digits) => value.toFixed(digits).replace("-", "−");

  /* Where the tokens are, and how an edge runs between two of them. */
  const onImage = (example, width) => {
    const [rows, columns, leading] = example.grid;
    const side = Math.min(width, 520);
    const top = leading ? 54 : 10;
    const cell = Math.min((side - 4) / columns, (side - 4) / rows);
    const points = example.tokens.map((_, k) => k < leading
      ? [2 + (columns * cell * (k + 0.5)) / leading, 20]
      : [2 + (((k - leading) % columns) + 0.5) * cell, top + (Math.floor((k - leading) / columns) + 0.5) * cell]);
    const svg = make("svg", { width: columns * cell + 4, height: rows * cell + top + 4, role: "img" });
    svg.append(make("image", { href: example.image, x: 2, y: top, width: columns * cell, height: rows * cell,
      preserveAspectRatio: "none", opacity: 0.38, style: "image-rendering: pixelated" }));
    const cells = make("g", { class: "cells" });
    for (let k = 1; k < columns && columns < 40; k++) cells.append(make("line", { x1: 2 + k * cell, x2: 2 + k * cell, y1: top, y2: top + rows * cell }));
    for (let k = 1; k < rows && rows < 40; k++) cells.append(make("line", { x1: 2, x2: 2 + columns * cell, y1: top + k * cell, y2: top + k * cell }));
    svg.append(cells, make("rect", { class: "frame", x: 2, y: top, width: columns * cell, height: rows * cell }));
    const labels = make("g", {});
    for (let k = 0; k < leading && leading < 4; k++)
      labels.append(make("text", { x: points[k][0] + 9, y: 24 }, example.tokens[k]));
    const path = (a, b) => {
      const [x1, y1] = points[a], [x2, y2] = points[b];
      const bend = 0.12; /* edges along one row must not hide each other */
      return `M${x1} ${y1}Q${(x1 + x2) / 2 - (y2 - y1) * bend} ${(y1 + y2) / 2 + (x2 - x1) * bend} ${x2} ${y2}`;
    };
    return { svg, points, path, labels };
  };
  const alongSentence = (example, width) => {
    const shown = example.tokens.map((_, k) => k).filter((k) => example.valid[k]);
    const place = new Map(shown.map((token, k) => [token, k]));
    const labels = make("g", {});
    const count = shown.length;
    if (width / Math.max(count, 1) >= 26) {
      const step = Math.min(90, (width - 70) / Math.max(count, 1));
      const longest = Math.max(1, ...shown.map((k) => Math.min(26, example.tokens[k].length)));
      const lean = longest * 7.5 > step - 6;
      const cut = lean ? 16 : 22;
      const room = lean ? 30 + Math.min(cut, longest) * 5.4 : 28;
      const left = lean ? Math.max(30, Math.min(cut, example.tokens[shown[0]].length) * 6 - step / 2, Math.min(cut, longest) * 6 - 2.5 * step) : 30;
      const base = Math.min(330, 40 + (count * step) / 3.2);
      const points = [];
      shown.forEach((token, k) => {
        points[token] = [left + step * (k + 0.5), base];
        const [x, y] = [points[token][0], base + 18];
        const text = make("text", lean ? { x, y: y - 2, "text-anchor": "end", transform: `rotate(-42 ${x} ${y - 4})` }
          : { x, y, "text-anchor": "middle" }, short(example.tokens[token], cut));
        labels.append(text);
      });
      const svg = make("svg", { width: Math.max(left + 10 + step * count, 200), height: base + room, role: "img" });
      const tallest = base - 10;
      const path = (a, b) => {
        const [x1, x2] = [points[a][0], points[b][0]];
        const height = Math.min(1, Math.abs(x2 - x1) / (step * Math.max(count - 1, 1))) ** 0.7 * tallest;
        return `M${x1} ${base}C${x1} ${base - height * 1.3} ${x2} ${base - height * 1.3} ${x2} ${base}`;
      };
      return { svg, points, path, labels, place };
    }
    const step = 22, points = [];
    const left = Math.min(150, 20 + 7.2 * Math.max(1, ...shown.map((k) => Math.min(18, example.tokens[k].length))));
    shown.forEach((token, k) => {
      points[token] = [left, 16 + step * k];
      labels.append(make("text", { x: left - 10, y: 20 + step * k, "text-anchor": "end" }, short(example.tokens[token], 16)));
    });
    const widest = Math.max(60, Math.min(width, 700) - left - 10);
    const svg = make("svg", { width: left + widest + 6, height: 32 + step * count, role: "img" });
    const path = (a, b) => {
      const [y1, y2] = [points[a][1], points[b][1]];
      const reach = Math.min(1, Math.abs(place.get(b) - place.get(a)) / Math.max(count - 1, 1)) ** 0.6 * widest;
      return `M${left} ${y1}C${left + reach * 1.3} ${y1} ${left + reach * 1.3} ${y2} ${left} ${y2}`;
    };
    return { svg, points, path, labels };
  };
  const short = (text, longest = 22) => (text.length > longest ? `${text.slice(0, longest - 1)}…` : text);

  const row = (edge, example, svg) => {
    const tr = document.createElement("tr");
    tr.dataset.edge = `${edge.i}-${edge.j}`;
    const names = document.createElement("td");
    names.className = "text";
    [edge.i, edge.j].forEach((token, k) => {
      const name = document.createElement("bdi");
      name.textContent = example.tokens[token];
      if (k) names.append(" – ");
      names.append(name);
    });
    names.title = names.textContent;
    const weight = document.createElement("td");
    weight.textContent = number(edge.weight, 4);
    const kappa = document.createElement("td");
    kappa.textContent = edge.kappa === null ? "no value" : number(edge.kappa, 3);
    tr.append(names, weight, kappa);
    const light = (on) => svg.querySelectorAll(`[data-edge="${edge.i}-${edge.j}"]`).forEach((p) => p.classList.toggle("lit", on));
    tr.addEventListener("mouseenter", () => light(true));
    tr.addEventListener("mouseleave", () => light(false));
    return tr;
  };

  const draw = () => {
    const example = examples[Number(control("example").value)];
    const layers = example.edges.length;
    control("layer").max = String(layers - 1);
    const layer = Math.min(Number(control("layer").value), layers - 1);
    const heads = example.edges[layer].length;
    control("head").max = String(heads - 1);
    control("head").disabled = heads < 2;
    const head = Math.min(Number(control("head").value), heads - 1);
    output("layer").textContent = String(layer);
    output("head").textContent = String(head);

    const picture = Boolean(example.image && example.grid);
    body.classList.toggle("sentence", !picture);
    const edges = edgesOf(example, layer, head);
    const lowest = edges.filter((e) => e.kappa !== null).sort((a, b) => a.kappa - b.kappa);
    const show = control("show").value;
    const chosen = show === "all" ? edges : show === "negative" ? lowest.filter((e) => e.kappa < 0).slice(0, 20) : edges.slice(0, 40);

    const view = picture ? onImage(example, frame.clientWidth) : alongSentence(example, frame.clientWidth);
    const heaviest = edges.length ? edges[0].weight : 1;
    const lines = make("g", {});
    [...chosen].reverse().forEach((edge) => {
      const strength = Math.sqrt(edge.weight / heaviest);
      const line = make("path", { class: "edge", d: view.path(edge.i, edge.j), stroke: shade(edge.kappa),
        "stroke-width": (0.8 + 5.2 * strength).toFixed(2), "stroke-opacity": (0.45 + 0.5 * strength).toFixed(2),
        "data-edge": `${edge.i}-${edge.j}` });
      const kappa = edge.kappa === null ? "no value" : number(edge.kappa, 3);
      line.append(make("title", {}, `${example.tokens[edge.i]} – ${example.tokens[edge.j]}: weight ${number(edge.weight, 4)}, curvature ${kappa}`));
      lines.append(line);
    });
    const dots = make("g", {});
    view.points.forEach(([x, y], k) => {
      if (!example.valid[k]) return;
      const dot = make("circle", { class: "token", cx: x, cy: y, r: view.points.length > 80 ? 2 : 3.2 });
      dot.append(make("title", {}, example.tokens[k]));
      dots.append(dot);
    });
    view.svg.append(lines, dots, view.labels);
    view.svg.setAttribute("aria-label", `Attention graph of sample ${example.sample}, layer ${layer}, head ${head}, ${chosen.length} edges`);
    frame.replaceChildren(view.svg);

    const summary = root.querySelector("[data-graph-summary]");
    const negative = lowest.filter((e) => e.kappa < 0).length;
    summary.textContent = edges.length
      ? `Layer ${layer}, head ${head}: ${chosen.length} of ${edges.length} kept edges are drawn; ${negative || "none"} of the ${edges.length} ${negative === 1 ? "is" : "are"} negative.`
      : `Layer ${layer}, head ${head}: no edge.`;
    const fill = (name, list) => root.querySelector(`[data-graph-table="${name}"] tbody`)
      .replaceChildren(...list.slice(0, 8).map((edge) => row(edge, example, view.svg)));
    fill("strongest", edges);
    fill("lowest", lowest);
  };
  const single = examples.every((example) => example.edges.every((layer) => layer.length < 2));
  control("head").closest("label").hidden = single;
  ["example", "show"].forEach((name) => control(name).addEventListener("change", draw));
  ["layer", "head"].forEach((name) => control(name).addEventListener("input", draw));
  showHead = (model, layer, head) => {
    const now = examples[Number(control("example").value)];
    if (now.model !== model) {
      const first = examples.findIndex((example) => example.model === model);
      if (first < 0) return;
      control("example").value = String(first);
    }
    [["layer", layer], ["head", head]].forEach(([name, value]) => {
      control(name).max = String(Math.max(Number(control(name).max), value));
      control(name).value = String(value);
    });
    draw();
    root.scrollIntoView({ block: "nearest" });
  };
  return draw;
};
const drawGraph = graph();
