"use strict";
/* Tokens on the sphere. */
const sphere = () => {
  const root = document.querySelector("[data-sphere]");
  if (!root) return null;
  const { scenes, unit } = data.tokens;
  const control = (name) => root.querySelector(`[data-sphere-control="${name}"]`);
  const output = (name) => root.querySelector(`[data-sphere-output="${name}"]`);
  const frame = root.querySelector("[data-sphere-frame]");
  const button = root.querySelector("[data-sphere-play]");
  const SIZE = 440, RADIUS = 200, TILT = 0.45;
  const make = (tag, attributes, text) => {
    const element = document.createElementNS(SVG, tag);
    Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
    if (text !== undefined) element.textContent = text;
    return element;
  };
  scenes.forEach((scene, k) => {
    const option = document.createElement("option");
    option.value = String(k);
    option.textContent = scene.model;
    control("scene").append(option);
  });
  control("scene").closest("label").hidden = scenes.length < 2;

  /* the view: a turn about the upright axis, then a tilt towards the reader */
  const seen = ([x, y, z], turn) => {
    const [c, s] = [Math.cos(turn), Math.sin(turn)];
    const [across, away] = [c * x - s * y, s * x + c * y];
    const [up, depth] = [Math.cos(TILT) * z + Math.sin(TILT) * away, Math.sin(TILT) * z - Math.cos(TILT) * away];
    return [SIZE / 2 + RADIUS * across, SIZE / 2 - RADIUS * up, depth];
  };
  const line = (points, turn) => `M${points.map((p) => seen(p, turn).slice(0, 2).map((v) => v.toFixed(1)).join(" ")).join("L")}`;
  const round = [...Array(49).keys()].map((k) => (k * Math.PI) / 24);
  const net = [
    ...[-0.6, 0, 0.6].map((h) => round.map((a) => [Math.sqrt(1 - h * h) * Math.cos(a), Math.sqrt(1 - h * h) * Math.sin(a), h])),
    ...[0, 1, 2, 3].map((k) => round.map((a) => [Math.sin(a) * Math.cos((k * Math.PI) / 4), Math.sin(a) * Math.sin((k * Math.PI) / 4), Math.cos(a)])),
  ];
  const draw = () => {
    const scene = scenes[Number(control("scene").value)];
    control("path").closest("label").hidden = !scene.layers;
    if (!scene.layers) control("path").value = "flow";
    const moments = scene[control("path").value], layers = control("path").value === "layers";
    control("time").max = String(moments.length - 1);
    const now = Math.min(Number(control("time").value), moments.length - 1);
    control("time").value = String(now);
    const degrees = Number(control("turn").value), turn = (degrees * Math.PI) / 180;
    output("turn").textContent = `${degrees}°`;
    output("time").textContent = layers ? `layer ${now}` : scene.t[now].toFixed(2);
    const svg = make("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img",
      "aria-label": `Tokens on the sphere, ${layers ? "model, layer" : "flow, time"} ${output("time").textContent}` });
    svg.append(make("circle", { class: "rim", cx: SIZE / 2, cy: SIZE / 2, r: RADIUS }));
    net.forEach((points) => svg.append(make("path", { class: "net", d: line(points, turn) })));
    const flat = moments[now], count = flat.length / 3;
    const points = [...Array(count).keys()].map((k) => ({ k, at: seen([0, 1, 2].map((c) => flat[3 * k + c] * unit), turn) }));
    points.sort((a, b) => a.at[2] - b.at[2]).forEach(({ k, at }) => {
      const near = (1 + at[2]) / 2;
      const dot = make("circle", { cx: at[0].toFixed(1), cy: at[1].toFixed(1), r: (3.2 + 3.2 * near).toFixed(1),
        fill: mix("--below", "--above", count > 1 ? k / (count - 1) : 0), "fill-opacity": (0.35 + 0.6 * near).toFixed(2) });
      dot.append(make("title", {}, scene.labels[k]));
      svg.append(dot);
    });
    frame.replaceChildren(svg);
    root.querySelector("[data-sphere-note]").textContent =
      `${count} tokens, coloured from the first to the last, as directions in three axes that hold ${scene.held} of their squared length.`;
  };

  let playing = 0;
  const stop = () => { clearInterval(playing); playing = 0; button.textContent = "Play"; };
  button.addEventListener("click", () => {
    if (playing) { stop(); return; }
    const time = control("time");
    if (Number(time.value) >= Number(time.max)) { time.value = "0"; draw(); }
    button.textContent = "Pause";
    playing = setInterval(() => {
      time.value = String(Number(time.value) + 1);
      draw();
      if (Number(time.value) >= Number(time.max)) stop();
    }, control("path").value === "layers" ? 500 : 90);
  });
  ["scene", "path"].forEach((name) => control(name).addEventListener("change", () => { stop(); control("time").value = "0"; draw(); }));
  ["time", "turn"].forEach((name) => control(name).addEventListener("input", draw));
  let from = null;
  frame.addEventListener("pointerdown", (event) => {
    from = [event.clientX, Number(control("turn").value)];
    frame.setPointerCapture(event.pointerId);
  });
  frame.addEventListener("pointermove", (event) => {
    if (!from) return;
    const turn = from[1] + (event.clientX - from[0]) / 2;
    control("turn").value = String(((((turn + 180) % 360) + 360) % 360) - 180);
    draw();
  });
  ["pointerup", "pointercancel"].forEach((name) => frame.addEventListener(name, () => { from = null; }));
  return draw;
};
const drawSphere = sphere();
