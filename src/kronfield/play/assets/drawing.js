// Curves, matrices and maps.

const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes, text) {
  const one = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  if (text !== undefined) one.textContent = text;
  return one;
}

function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) || rough;
  const found = [];
  for (let t = Math.ceil(low / step) * step; t <= high + 1e-9 * step; t += step) found.push(Number(t.toPrecision(10)));
  return found;
}

// series: [{x, y, kind, upper?}], dots: {x, y}; returns the conversion from the mouse to numbers.
export function curves(svg, { series, dots = null, height = 190, log = false, low = null, high = null, left = null, right = null, label, pen = null }) {
  const width = svg.clientWidth || 420;
  const pad = { left: 44, right: 8, top: 8, bottom: 22 };
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.style.height = `${height}px`;
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  const all = series.flatMap((one) => one.y.concat(one.upper || [])).concat(dots ? dots.y : []).filter((v) => v !== null && Number.isFinite(v));
  const xs = series.flatMap((one) => [one.x[0], one.x[one.x.length - 1]]);
  const floor = 1e-16;
  let y0 = low ?? Math.min(...all);
  let y1 = high ?? Math.max(...all);
  if (log) { y0 = Math.log10(Math.max(y0, floor)); y1 = Math.log10(Math.max(y1, floor)); }
  if (y1 - y0 < 1e-12) { y0 -= 0.5; y1 += 0.5; }
  const x0 = left ?? Math.min(...xs);
  const x1 = right ?? Math.max(...xs);
  const px = (x) => pad.left + ((x - x0) / (x1 - x0 || 1)) * (width - pad.left - pad.right);
  const value = (y) => (log ? Math.log10(Math.max(y, floor)) : y);
  const py = (y) => height - pad.bottom - ((value(y) - y0) / (y1 - y0)) * (height - pad.top - pad.bottom);
  const parts = [];
  for (const t of ticks(x0, x1, 6)) {
    parts.push(element("line", { x1: px(t), x2: px(t), y1: pad.top, y2: height - pad.bottom, class: "axis" }));
    parts.push(element("text", { x: px(t), y: height - 7, "text-anchor": "middle" }, t));
  }
  for (const t of ticks(y0, y1, 4)) {
    const y = height - pad.bottom - ((t - y0) / (y1 - y0)) * (height - pad.top - pad.bottom);
    parts.push(element("line", { x1: pad.left, x2: width - pad.right, y1: y, y2: y, class: "axis" }));
    parts.push(element("text", { x: pad.left - 5, y: y + 4, "text-anchor": "end" }, log ? `1e${Number(t.toPrecision(3))}` : t));
  }
  const clip = (v) => Math.max(-1e4, Math.min(1e4, v));
  for (const one of series) {
    const at = one.x.map((x, i) => [px(x), one.y[i]]).filter(([, y]) => y !== null);
    if (one.upper) {
      const top = one.x.map((x, i) => `${px(x).toFixed(1)},${clip(py(one.upper[i])).toFixed(1)}`);
      const bottom = at.map(([x, y]) => `${x.toFixed(1)},${clip(py(y)).toFixed(1)}`).reverse();
      parts.push(element("polygon", { points: top.concat(bottom).join(" "), class: "band" }));
      continue;
    }
    const path = at.map(([x, y]) => `${x.toFixed(1)},${clip(py(y)).toFixed(1)}`).join(" ");
    parts.push(element("polyline", { points: path, class: `series ${one.kind}` }));
  }
  if (dots) dots.x.forEach((x, i) => parts.push(element("circle", { cx: px(x), cy: clip(py(dots.y[i])), r: 3 })));
  if (pen) parts.push(element("circle", { cx: px(pen[0]), cy: clip(py(pen[1])), r: 7, class: "pen" }));
  svg.replaceChildren(...parts);
  return (event) => {
    const box = svg.getBoundingClientRect();
    const mx = ((event.clientX - box.left) / box.width) * width;
    const my = ((event.clientY - box.top) / box.height) * height;
    return [
      x0 + ((mx - pad.left) / (width - pad.left - pad.right)) * (x1 - x0),
      y0 + ((height - pad.bottom - my) / (height - pad.top - pad.bottom)) * (y1 - y0),
    ];
  };
}

// A perceptual scale from dark blue over green to yellow, and a two-sided one around 0.
const RISING = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const SIDES = [[33, 102, 172], [247, 247, 247], [178, 24, 43]];

function colour(scale, t) {
  const at = Math.max(0, Math.min(1, t)) * (scale.length - 1);
  const i = Math.min(scale.length - 2, Math.floor(at));
  return scale[i].map((low, c) => low + (at - i) * (scale[i + 1][c] - low));
}

// A matrix of bytes: {rows, low, high, data}, with the bytes in base 64.
export function matrix(canvas, { rows, low, data }, label) {
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const columns = bytes.length / rows;
  canvas.width = columns;
  canvas.height = rows;
  canvas.style.aspectRatio = "1.6";
  canvas.style.imageRendering = "pixelated";
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  const lists = Array.from({ length: rows }, (_, i) => Array.from(bytes.subarray(i * columns, (i + 1) * columns)));
  paint(canvas, lists, (v) => colour(low < 0 ? SIDES : RISING, v / 255));
}

function paint(canvas, rows, shade) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(rows[0].length, rows.length);
  rows.forEach((row, i) => row.forEach((v, j) => {
    const k = 4 * (i * row.length + j);
    const [r, g, b] = shade(v);
    image.data.set([r, g, b, 255], k);
  }));
  context.putImageData(image, 0, 0);
}

// A map: values[i][j] at x[i], y[j]; the y axis points up.
export function map(canvas, { values, box, points, contours, slopes, rejected = [], low, high, cursor = null }) {
  const width = canvas.clientWidth || 600;
  const height = canvas.clientHeight || 400;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  const small = document.createElement("canvas");
  const n = values.length;
  const m = values[0].length;
  small.width = n;
  small.height = m;
  const rows = Array.from({ length: m }, (_, j) => values.map((column) => column[m - 1 - j]));
  paint(small, rows, (v) => colour(RISING, (v - low) / (high - low || 1)));
  context.imageSmoothingEnabled = true;
  context.scale(ratio, ratio);
  context.drawImage(small, 0, 0, width, height);
  const px = (x) => ((x - box[0][0]) / (box[0][1] - box[0][0])) * width;
  const py = (y) => height - ((y - box[1][0]) / (box[1][1] - box[1][0])) * height;
  if (contours && high > low) {
    context.strokeStyle = "rgba(255,255,255,.75)";
    context.lineWidth = 1;
    for (const level of ticks(low, high, 14)) {
      context.beginPath();
      for (const [a, b] of isolines(values, level)) {
        context.moveTo((a[0] / (n - 1)) * width, height - (a[1] / (m - 1)) * height);
        context.lineTo((b[0] / (n - 1)) * width, height - (b[1] / (m - 1)) * height);
      }
      context.stroke();
    }
  }
  if (slopes) {
    const count = slopes.length;
    const scaled = slopes.map((column) => column.map(([gx, gy]) => [gx * (box[0][1] - box[0][0]) / width, -gy * (box[1][1] - box[1][0]) / height]));
    const most = Math.max(1e-12, ...scaled.flat().map(([gx, gy]) => Math.hypot(gx, gy)));
    context.strokeStyle = context.fillStyle = "rgba(0,0,0,.8)";
    context.lineWidth = 1.4;
    const long = 0.8 * Math.min(width, height) / count;
    scaled.forEach((column, i) => column.forEach(([gx, gy], j) => {
      const x = ((i + 0.5) / count) * width;
      const y = height - ((j + 0.5) / count) * height;
      const dx = (gx / most) * long;
      const dy = (gy / most) * long;
      context.beginPath();
      context.moveTo(x - dx / 2, y - dy / 2);
      context.lineTo(x + dx / 2, y + dy / 2);
      context.stroke();
      const angle = Math.atan2(dy, dx);
      const head = Math.min(6, Math.hypot(dx, dy) / 2);
      context.beginPath();
      context.moveTo(x + dx / 2, y + dy / 2);
      for (const side of [2.6, -2.6]) context.lineTo(x + dx / 2 + head * Math.cos(angle + side), y + dy / 2 + head * Math.sin(angle + side));
      context.fill();
    }));
  }
  points.forEach(([x, y, v], i) => {
    context.beginPath();
    context.arc(px(x), py(y), 5, 0, 2 * Math.PI);
    const [r, g, b] = colour(RISING, (v - low) / (high - low || 1));
    context.fillStyle = `rgb(${r},${g},${b})`;
    context.fill();
    context.lineWidth = 1.5;
    context.strokeStyle = rejected.includes(i) ? "#ff2d2d" : "#fff";
    context.stroke();
    if (rejected.includes(i)) { context.beginPath(); context.arc(px(x), py(y), 9, 0, 2 * Math.PI); context.stroke(); }
  });
  if (cursor) {
    const [x, y] = [cursor[0] * width, (1 - cursor[1]) * height];
    for (const [shade, line] of [["#000", 4], ["#fff", 2]]) {
      context.strokeStyle = shade;
      context.lineWidth = line;
      context.beginPath();
      for (const [dx, dy] of [[10, 0], [0, 10]]) { context.moveTo(x - dx, y - dy); context.lineTo(x + dx, y + dy); }
      context.stroke();
    }
  }
  return {
    place(event) {
      const area = canvas.getBoundingClientRect();
      const u = (event.clientX - area.left) / area.width;
      const v = 1 - (event.clientY - area.top) / area.height;
      return [box[0][0] + u * (box[0][1] - box[0][0]), box[1][0] + v * (box[1][1] - box[1][0])];
    },
    nearest(event) {
      const area = canvas.getBoundingClientRect();
      const at = [((event.clientX - area.left) / area.width) * width, ((event.clientY - area.top) / area.height) * height];
      const far = points.map(([x, y]) => Math.hypot(px(x) - at[0], py(y) - at[1]));
      const i = far.indexOf(Math.min(...far));
      return far.length && far[i] < 9 ? i : -1;
    },
  };
}

// Pieces of the lines of one level, by marching squares (Lorensen and Cline, 1987, in the plane).
function isolines(values, level) {
  const found = [];
  for (let i = 0; i + 1 < values.length; i += 1) {
    for (let j = 0; j + 1 < values[0].length; j += 1) {
      const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]];
      const crossings = [];
      for (let k = 0; k < 4; k += 1) {
        const [a, b] = [corners[k], corners[(k + 1) % 4]];
        const [u, v] = [values[a[0]][a[1]], values[b[0]][b[1]]];
        if ((u < level) !== (v < level)) {
          const t = (level - u) / (v - u);
          crossings.push([a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])]);
        }
      }
      if (crossings.length >= 2) found.push([crossings[0], crossings[1]]);
      if (crossings.length === 4) found.push([crossings[2], crossings[3]]);
    }
  }
  return found;
}
