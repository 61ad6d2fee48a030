/* One floating note for whatever is under the pointer or in focus. */

const box = document.getElementById("tip");

/** Show `content` beside an element, or at {x, y}. */
export function showTip(target, content) {
  box.replaceChildren(content);
  box.hidden = false;
  const spot = target.getBoundingClientRect?.() ?? { left: target.x, right: target.x, top: target.y - 6, bottom: target.y + 10 };
  const { width, height } = box.getBoundingClientRect();
  const left = Math.min(Math.max(8, (spot.left + spot.right - width) / 2), innerWidth - width - 8);
  const below = spot.bottom + 8 + height < innerHeight;
  box.style.transform = `translate(${Math.max(8, left)}px, ${below ? spot.bottom + 8 : Math.max(8, spot.top - height - 8)}px)`;
}

export function hideTip() {
  box.hidden = true;
}
