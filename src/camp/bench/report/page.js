"use strict";
// Choosing runs: without this script all runs are simply there.
const boxes = document.querySelectorAll("[data-choose]");
function choose() {
  for (const box of boxes)
    for (const part of document.querySelectorAll(`[data-run="${box.dataset.choose}"]`)) part.hidden = !box.checked;
  for (const section of document.querySelectorAll("section.each"))
    section.classList.toggle("bare", !section.querySelector("[data-run]:not([hidden])"));
}
for (const box of boxes) box.addEventListener("change", choose);
choose();

// What a mark stands for, shown at once instead of after the browser's pause.
const tip = document.getElementById("tip");
for (const title of document.querySelectorAll("svg title")) {
  title.parentNode.dataset.tip = title.textContent;
  title.remove();
}
document.addEventListener("pointermove", (event) => {
  const mark = event.target.closest?.("[data-tip]");
  tip.hidden = !mark;
  if (!mark) return;
  tip.textContent = mark.dataset.tip;
  const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 18;
  const y = below + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : below;
  tip.style.translate = `${Math.max(x, 8)}px ${y}px`;
});
document.addEventListener("pointerleave", () => (tip.hidden = true));
