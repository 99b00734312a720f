"use strict";
/* Draw everything, and again when the width or the colour scheme changes. */
const drawAll = () => {
  sections.forEach(drawSection);
  if (drawGraph) drawGraph();
  if (drawSphere) drawSphere();
};
drawAll();
dark.addEventListener("change", drawAll);
let width = window.innerWidth, waiting = 0;
window.addEventListener("resize", () => {
  if (window.innerWidth === width) return; /* phones resize when the address bar hides */
  width = window.innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(drawAll, 120);
});
document.documentElement.dataset.ready = "yes";
