/* Many points on a canvas: drawn pixel by pixel, which keeps 100,000 of them smooth while one drags. */

const FADED = 0.16;

/** "#2a78d6" as [r, g, b]. */
const rgb = (text) => [1, 3, 5].map((at) => parseInt(text.trim().slice(at, at + 2), 16));

/** How much of each pixel a disc of radius r covers, as [dx, dy, cover] in turn. */
function disc(radius) {
  const reach = Math.ceil(radius);
  const cells = [];
  for (let y = -reach; y <= reach; y++) {
    for (let x = -reach; x <= reach; x++) {
      const cover = Math.min(1, Math.max(0, radius + 0.5 - Math.hypot(x, y)));
      if (cover > 0) cells.push(x, y, cover);
    }
  }
  return new Float32Array(cells);
}

export class Plot {
  /** `xy` (2 n) and `category` (n) are typed arrays; a category below 0 is not drawn. */
  constructor(canvas) {
    this.canvas = canvas;
    this.xy = new Float32Array();
    this.category = new Int32Array();
    this.highlighted = null;
    this.chosen = new Uint8Array();
    this.choosing = false;
    this.view = { x: 0, y: 0, scale: 1 };
    this.titles = new Map();
    this.waiting = false;
    this.dye();
  }

  /** Read the colours of the page, light or dark. */
  dye() {
    const style = getComputedStyle(document.documentElement);
    this.colours = Array.from({ length: 8 }, (_, i) => rgb(style.getPropertyValue(`--c${i}`)));
    this.paper = rgb(style.getPropertyValue("--surface"));
    this.ink = rgb(style.getPropertyValue("--ink"));
    this.font = `600 12px ${getComputedStyle(document.body).fontFamily}`;
  }

  set(xy, category) {
    this.xy = xy;
    this.category = category;
    this.count();
    this.redraw();
  }

  /** Pictures that stand out, by row. */
  choose(rows) {
    this.chosen = new Uint8Array(this.category.length);
    this.choosing = rows.size > 0;
    for (const row of rows) this.chosen[row] = 1;
    this.redraw();
  }

  /** Where labels go: the middle of each category. */
  count() {
    const sums = new Map();
    for (let i = 0; i < this.category.length; i++) {
      if (this.category[i] < 0) continue;
      const sum = sums.get(this.category[i]) ?? { x: 0, y: 0, n: 0 };
      sum.x += this.xy[2 * i];
      sum.y += this.xy[2 * i + 1];
      sum.n += 1;
      sums.set(this.category[i], sum);
    }
    this.middles = [...sums].map(([id, { x, y, n }]) => ({ id, n, x: x / n, y: y / n })).sort((a, b) => b.n - a.n);
  }

  /** Size the canvas to its box; `true` if that changed anything. */
  resize() {
    this.ratio = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.canvas;
    const [width, height] = [Math.round(clientWidth * this.ratio), Math.round(clientHeight * this.ratio)];
    if (this.canvas.width === width && this.canvas.height === height) return false;
    Object.assign(this.canvas, { width, height });
    this.redraw();
    return true;
  }

  /** Show everything. */
  fit() {
    let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
    for (let i = 0; i < this.xy.length; i += 2) {
      left = Math.min(left, this.xy[i]); right = Math.max(right, this.xy[i]);
      top = Math.min(top, this.xy[i + 1]); bottom = Math.max(bottom, this.xy[i + 1]);
    }
    if (!(right >= left)) return;
    const { clientWidth, clientHeight } = this.canvas;
    const scale = Math.min((clientWidth - 60) / (right - left || 1), (clientHeight - 60) / (bottom - top || 1));
    this.fitted = scale;
    this.view = { x: (left + right) / 2, y: (top + bottom) / 2, scale };
    this.redraw();
  }

  /** Zoom by a factor, with the point at (x, y) of the canvas in place. */
  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const [dx, dy] = [x - this.canvas.clientWidth / 2, y - this.canvas.clientHeight / 2];
    const scale = Math.min(Math.max(this.view.scale * factor, this.fitted / 4), this.fitted * 400);
    this.view.x += dx / this.view.scale - dx / scale;
    this.view.y += dy / this.view.scale - dy / scale;
    this.view.scale = scale;
    this.redraw();
  }

  pan(dx, dy) {
    this.view.x -= dx / this.view.scale;
    this.view.y -= dy / this.view.scale;
    this.redraw();
  }

  /** A point of the map as pixels of the page within the canvas. */
  place(x, y) {
    const { view, canvas } = this;
    return [(x - view.x) * view.scale + canvas.clientWidth / 2, (y - view.y) * view.scale + canvas.clientHeight / 2];
  }

  /** Row of the picture nearest to (x, y) within `reach` pixels, or -1. */
  nearest(x, y, reach = 12) {
    let best = -1;
    let least = (reach / this.view.scale) ** 2;
    const u = (x - this.canvas.clientWidth / 2) / this.view.scale + this.view.x;
    const v = (y - this.canvas.clientHeight / 2) / this.view.scale + this.view.y;
    for (let i = 0; i < this.category.length; i++) {
      const d = (this.xy[2 * i] - u) ** 2 + (this.xy[2 * i + 1] - v) ** 2;
      if (d < least && this.category[i] >= 0) {
        best = i;
        least = d;
      }
    }
    return best;
  }

  /** Rows of the pictures inside a polygon [[x, y], ...] of the canvas. */
  inside(polygon) {
    // Few corners are moved to the map rather than many pictures to the canvas.
    const { view, canvas, category, xy } = this;
    const xs = polygon.map(([x]) => (x - canvas.clientWidth / 2) / view.scale + view.x);
    const ys = polygon.map(([, y]) => (y - canvas.clientHeight / 2) / view.scale + view.y);
    const left = Math.min(...xs), right = Math.max(...xs), top = Math.min(...ys), bottom = Math.max(...ys);
    const rows = [];
    for (let i = 0; i < category.length; i++) {
      const x = xy[2 * i], y = xy[2 * i + 1];
      if (category[i] < 0 || x < left || x > right || y < top || y > bottom) continue;
      let within = false;
      for (let a = 0, b = xs.length - 1; a < xs.length; b = a++) {
        if (ys[a] > y !== ys[b] > y && x < ((xs[b] - xs[a]) * (y - ys[a])) / (ys[b] - ys[a]) + xs[a]) within = !within;
      }
      if (within) rows.push(i);
    }
    return rows;
  }

  /** Draw at the next frame, once. */
  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (this.canvas.isConnected && this.canvas.width) this.draw();
    });
  }

  draw() {
    const { canvas, ratio, category, xy, view } = this;
    const { width, height } = canvas;
    const context = canvas.getContext("2d");
    if (this.image?.width !== width || this.image.height !== height) this.image = context.createImageData(width, height);
    const { image } = this;
    new Uint32Array(image.data.buffer).fill(new Uint32Array(new Uint8ClampedArray([...this.paper, 255]).buffer)[0]);
    const crowd = category.length > 30_000 ? 1.1 : category.length > 5_000 ? 1.8 : 3;
    const radius = ratio * Math.min(6, crowd * Math.sqrt(Math.max(1, view.scale / (this.fitted ?? view.scale))));
    const small = disc(radius), large = disc(radius + ratio * 1.2);
    const scale = view.scale * ratio;
    const x0 = width / 2 - view.x * scale, y0 = height / 2 - view.y * scale;
    const { chosen, choosing, highlighted } = this;
    const fading = highlighted !== null || choosing;
    // Twice: what stands out is drawn over the rest.
    for (const front of fading ? [false, true] : [false]) {
      for (let i = 0; i < category.length; i++) {
        const id = category[i];
        if (id < 0) continue;
        const picked = choosing && chosen[i] === 1;
        if (fading && (picked || id === highlighted) !== front) continue;
        const x = Math.round(xy[2 * i] * scale + x0), y = Math.round(xy[2 * i + 1] * scale + y0);
        if (x < 0 || y < 0 || x >= width || y >= height) continue;
        if (picked) blend(image, x, y, large, this.ink, 1);
        blend(image, x, y, small, this.colours[id % 8], fading && !front ? FADED : 1);
      }
    }
    context.putImageData(image, 0, 0);
    this.label(context);
  }

  /** Names at the middles, the largest first, where there is room. */
  label(context) {
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.font = this.font;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineJoin = "round";
    const taken = [];
    const first = this.middles?.filter(({ id }) => id === this.highlighted) ?? [];
    for (const { id, x, y } of [...first, ...(this.middles ?? [])]) {
      const text = this.titles.get(id);
      const [left, top] = this.place(x, y);
      const half = text ? context.measureText(text).width / 2 + 6 : 0;
      if (!text || left < -half || top < 0 || left > this.canvas.clientWidth + half || top > this.canvas.clientHeight) continue;
      if (taken.some((box) => Math.abs(box.left - left) < box.half + half && Math.abs(box.top - top) < 18)) continue;
      taken.push({ left, top, half });
      context.globalAlpha = this.highlighted === null || this.highlighted === id ? 1 : 0.45;
      context.strokeStyle = `rgb(${this.paper})`;
      context.lineWidth = 4;
      context.strokeText(text, left, top);
      context.fillStyle = `rgb(${this.ink})`;
      context.fillText(text, left, top);
    }
    context.globalAlpha = 1;
    context.setTransform(1, 0, 0, 1, 0, 0);
  }
}

/** Mix a colour into the pixels around (x, y). This is where the time goes: no arrays are made here. */
function blend(image, x, y, cells, colour, strength) {
  const data = image.data, width = image.width, height = image.height;
  const red = colour[0], green = colour[1], blue = colour[2];
  for (let c = 0; c < cells.length; c += 3) {
    const u = x + cells[c], v = y + cells[c + 1];
    if (u < 0 || v < 0 || u >= width || v >= height) continue;
    const at = 4 * (v * width + u), share = cells[c + 2] * strength;
    data[at] += (red - data[at]) * share;
    data[at + 1] += (green - data[at + 1]) * share;
    data[at + 2] += (blue - data[at + 2]) * share;
  }
}
