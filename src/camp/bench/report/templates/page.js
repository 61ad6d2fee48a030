"use strict";
const tip = document.getElementById("tip");
function tell(event, text) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 18;
  const y = below + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : below;
  tip.style.translate = `${Math.max(x, 8)}px ${y}px`;
}

// A chart is drawn when it comes into view: a page of many runs opens at once.
function draw(element) {
  if (!element.dataset.chart) return;
  const spec = JSON.parse(element.dataset.chart);
  delete element.dataset.chart;
  const tooltip = (handler, event, item, value) => tell(event, value);
  return vegaEmbed(element, spec, { actions: false, renderer: "svg", config: CHART_CONFIG, tooltip });
}
const inView = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => draw(entry.target)),
  { rootMargin: "600px" },
);
const charts = document.querySelectorAll(".chart");
for (const chart of charts) inView.observe(chart);
addEventListener("beforeprint", () => charts.forEach(draw));

// Choosing runs.
const boxes = document.querySelectorAll("[data-choose]");
function choose() {
  for (const box of boxes)
    for (const part of document.querySelectorAll(`[data-run="${box.dataset.choose}"]`)) part.hidden = !box.checked;
  for (const section of document.querySelectorAll("section.each"))
    section.classList.toggle("bare", !section.querySelector("[data-run]:not([hidden])"));
}
for (const box of boxes) box.addEventListener("change", choose);
choose();
