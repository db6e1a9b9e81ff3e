"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const about = JSON.parse(at("about").textContent);
  const map = at("map"), canvas = at("canvas"), space = at("space"), pen = canvas.getContext("2d");
  const LABEL = 14, LONGEST = 180, SMALLEST = 1, LARGEST = 64;
  const RAMPS = {
    light: [[255, 255, 255], [190, 215, 240], [95, 160, 215], [30, 95, 170], [10, 35, 90]],
    dark: [[20, 23, 28], [40, 60, 110], [60, 125, 170], [140, 195, 170], [250, 240, 150]],
  };
  const darkScheme = matchMedia("(prefers-color-scheme: dark)");
  // What is shown: a part, a layer, a head ("mean": of all), the cell in focus, the one under the mouse, and pixels a cell.
  const state = { part: 0, layer: 0, head: 0, query: 0, key: 0, hover: null, size: 16, left: 60, top: 60 };
  const decoded = new Map();
  let cells, largest;

  const part = () => about.parts[state.part];

  // ---- numbers and words ----

  function decode(p, layer, head) {
    const name = `cells-${p}-${layer}-${head}`;
    if (!decoded.has(name)) {
      const element = at(name), bytes = atob(element.textContent), values = new Float32Array(bytes.length / 2);
      const factor = Number(element.dataset.largest) / 65534;
      for (let i = 0; i < values.length; i++) {
        const cell = bytes.charCodeAt(2 * i) | (bytes.charCodeAt(2 * i + 1) << 8);
        values[i] = cell === 65535 ? NaN : cell * factor;
      }
      decoded.set(name, values);
    }
    return decoded.get(name);
  }

  function matrix() {
    if (state.head !== "mean") return decode(state.part, state.layer, state.head);
    const heads = part().heads, sum = new Float32Array(part().query.count * part().key.count);
    for (let head = 0; head < heads; head++) {
      const one = decode(state.part, state.layer, head);
      for (let i = 0; i < sum.length; i++) sum[i] += one[i] / heads;
    }
    return sum;
  }

  // Characters that cannot be seen, or that turn the text around them, by their names.
  const visible = (text) => text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    (c) => `‹U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);

  function label(axis, i) {
    if (axis.labels) return visible(axis.labels[i]);
    const number = axis.first + axis.step * i;
    return String(Number(number.toFixed(4))) + visible(axis.unit);
  }

  const named = (axis, i) => `${visible(axis.name)} ` + (axis.labels ? `${i} “${label(axis, i)}”` : label(axis, i));

  function shown(p) {
    if (Number.isNaN(p)) return "not a number";
    return p !== 0 && p < 0.00005 ? p.toExponential(2) : p.toFixed(4);
  }

  // ---- drawing ----

  const ramp = () => RAMPS[darkScheme.matches ? "dark" : "light"];

  function colour(stops, t) {
    const place = t * (stops.length - 1), i = Math.min(Math.floor(place), stops.length - 2);
    return stops[i].map((low, c) => Math.round(low + (stops[i + 1][c] - low) * (place - i)));
  }

  function fitted(text, width) {
    if (pen.measureText(text).width <= width) return text;
    const letters = Array.from(text);
    let low = 0, high = letters.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (pen.measureText(letters.slice(0, middle).join("") + "…").width <= width) low = middle; else high = middle - 1;
    }
    return letters.slice(0, low).join("") + "…";
  }

  function margin(axis) {
    let widest = 0;
    for (let i = 0; i < axis.count && widest < LONGEST; i += Math.max(1, Math.floor(axis.count / 4000)))
      widest = Math.max(widest, pen.measureText(label(axis, i)).width);
    return Math.ceil(Math.min(Math.max(widest, 20), LONGEST)) + 12;
  }

  // The probability that has the full colour, among a query's.
  function fullest(query) {
    const choice = at("full").value, columns = part().key.count;
    if (choice === "one") return 1;
    if (choice === "head") return largest || 1;
    let most = 0;
    for (let i = query * columns; i < (query + 1) * columns; i++) if (cells[i] > most) most = cells[i];
    return most || 1;
  }

  // How much of the colour a probability has, from 0 to 1.
  function strength(p, most) {
    const part = Math.min(Math.max(p / most, 0), 1);
    return at("root").checked ? Math.sqrt(part) : part;
  }

  // The cells in sight, one pixel each, then blown up without smoothing.
  function drawCells(rows, columns, first, last) {
    const wide = last[1] - first[1], high = last[0] - first[0], stops = ramp(), table = [];
    if (wide <= 0 || high <= 0) return;
    for (let i = 0; i < 256; i++) table.push(colour(stops, i / 255));
    const small = document.createElement("canvas");
    small.width = wide;
    small.height = high;
    const image = new ImageData(wide, high);
    for (let y = 0, i = 0; y < high; y++) {
      const most = fullest(first[0] + y);
      for (let x = 0; x < wide; x++, i += 4) {
        const p = cells[(first[0] + y) * columns + first[1] + x];
        const rgb = Number.isNaN(p) ? [214, 40, 160] : table[Math.round(255 * strength(p, most))];
        image.data[i] = rgb[0];
        image.data[i + 1] = rgb[1];
        image.data[i + 2] = rgb[2];
        image.data[i + 3] = 255;
      }
    }
    small.getContext("2d").putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, state.left + first[1] * state.size - map.scrollLeft,
      state.top + first[0] * state.size - map.scrollTop, wide * state.size, high * state.size);
  }

  function drawNumbers(columns, first, last) {
    if (state.size < 40) return;
    const digits = Math.min(Math.max(1 - Math.floor(Math.log10(largest || 1)), 2), 4);
    pen.textAlign = "center";
    for (let row = first[0]; row < last[0]; row++)
      for (let column = first[1]; column < last[1]; column++) {
        const p = cells[row * columns + column], rgb = colour(ramp(), strength(p, fullest(row)));
        const light = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 128;
        pen.fillStyle = Number.isNaN(p) || !light ? "#fff" : "#000";
        pen.fillText(Number.isNaN(p) ? "NaN" : p.toFixed(digits).replace(/^0/, ""),
          state.left + (column + 0.5) * state.size - map.scrollLeft, state.top + (row + 0.5) * state.size - map.scrollTop);
      }
  }

  // Labels of every n-th row or column, n so large that they do not overlap, and always of the one in focus.
  function drawLabels(axis, from, to, focus, down) {
    const every = Math.max(1, Math.ceil(LABEL / state.size)), style = getComputedStyle(document.documentElement);
    const place = (i) => (down ? state.top - map.scrollTop : state.left - map.scrollLeft) + (i + 0.5) * state.size;
    const room = (down ? state.left : state.top) - 10;
    const write = (i, ink) => {
      pen.fillStyle = ink;
      pen.save();
      if (down) pen.translate(state.left - 6, place(i));
      else {
        pen.translate(place(i), state.top - 6);
        pen.rotate(-Math.PI / 2);
      }
      pen.textAlign = down ? "right" : "left";
      pen.fillText(fitted(label(axis, i), room), 0, 0);
      pen.restore();
    };
    const near = (i) => focus >= from && focus < to && Math.abs(i - focus) * state.size < LABEL;
    for (let i = Math.ceil(from / every) * every; i < to; i += every)
      if (!near(i)) write(i, style.getPropertyValue("--faint"));
    if (focus >= from && focus < to) write(focus, style.getPropertyValue("--ink"));
  }

  function outline(query, key, ink, width) {
    pen.strokeStyle = ink;
    pen.lineWidth = width;
    const size = Math.max(state.size, 4), shift = (state.size - size) / 2;
    pen.strokeRect(state.left + key * state.size + shift - map.scrollLeft,
      state.top + query * state.size + shift - map.scrollTop, size, size);
  }

  function draw() {
    const rows = part().query.count, columns = part().key.count;
    const wide = Math.min(map.clientWidth, space.clientWidth), high = Math.min(map.clientHeight, space.clientHeight);
    const ratio = window.devicePixelRatio || 1, style = getComputedStyle(document.documentElement);
    canvas.width = Math.round(wide * ratio);
    canvas.height = Math.round(high * ratio);
    Object.assign(canvas.dataset, { left: state.left, top: state.top, size: state.size }); // for tests
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${high}px`;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.fillStyle = style.getPropertyValue("--paper");
    pen.fillRect(0, 0, wide, high);
    const first = [Math.floor(map.scrollTop / state.size), Math.floor(map.scrollLeft / state.size)];
    const last = [Math.min(rows, Math.ceil((map.scrollTop + high - state.top) / state.size)),
      Math.min(columns, Math.ceil((map.scrollLeft + wide - state.left) / state.size))];
    pen.save();
    pen.beginPath();
    pen.rect(state.left, state.top, wide - state.left, high - state.top);
    pen.clip();
    drawCells(rows, columns, first, last);
    drawNumbers(columns, first, last);
    if (state.hover) outline(state.hover[0], state.hover[1], style.getPropertyValue("--faint"), 1);
    outline(state.query, state.key, style.getPropertyValue("--paper"), 4);
    outline(state.query, state.key, style.getPropertyValue("--focus"), 2);
    pen.restore();
    const focus = state.hover || [state.query, state.key];
    pen.save();
    pen.beginPath();
    pen.rect(0, state.top - LABEL / 2, state.left, high);
    pen.clip();
    drawLabels(part().query, first[0], last[0], focus[0], true);
    pen.restore();
    pen.save();
    pen.beginPath();
    pen.rect(state.left - LABEL / 2, 0, wide, state.top);
    pen.clip();
    drawLabels(part().key, first[1], last[1], focus[1], false);
    pen.restore();
    pen.strokeStyle = style.getPropertyValue("--line");
    pen.lineWidth = 1;
    pen.strokeRect(state.left - 0.5, state.top - 0.5, columns * state.size + 1, rows * state.size + 1);
  }

  // ---- the picture of which keys are patches ----

  function pixels(p) {
    const name = `picture-${p}`;
    if (!decoded.has(name)) decoded.set(name, Uint8Array.from(atob(at(name).textContent), (c) => c.charCodeAt(0)));
    return decoded.get(name);
  }

  // What a query attends to, over the picture: full colour is the largest of the patches, or 1.
  function drawPicture() {
    const { picture } = part(), over = at("over"), brush = over.getContext("2d");
    at("picture").hidden = !picture;
    if (!picture) return;
    const { width, height, rows, columns, first } = picture, query = state.hover ? state.hover[0] : state.query;
    const from = query * part().key.count + first, row = cells.slice(from, from + rows * columns);
    const most = at("full").value === "one" ? 1 : row.reduce((a, p) => (p > a ? p : a), 0) || 1;
    const tints = Array.from(row, (p) => (Number.isNaN(p) ? [214, 40, 160] : colour(RAMPS.dark, strength(p, most))));
    const image = new ImageData(width, height), rgb = pixels(state.part);
    for (let y = 0, i = 0; y < height; y++)
      for (let x = 0; x < width; x++, i++) {
        const tint = tints[Math.floor(y * rows / height) * columns + Math.floor(x * columns / width)];
        for (let c = 0; c < 3; c++) image.data[4 * i + c] = Math.floor((2 * rgb[3 * i + c] + 3 * tint[c] + 2) / 5);
        image.data[4 * i + 3] = 255;
      }
    over.width = width;
    over.height = height;
    over.style.width = `${width * Math.max(1, Math.floor(384 / Math.max(width, height)))}px`;
    brush.putImageData(image, 0, 0);
    if (query >= first) {
      const wide = width / columns, high = height / rows, patch = query - first;
      brush.strokeStyle = "#c2410c";
      brush.strokeRect(patch % columns * wide + 0.5, Math.floor(patch / columns) * high + 0.5, wide - 1, high - 1);
    }
    at("picture-of").textContent = `What ${named(part().query, query)} attends to, over the picture. ` +
      "A click on a patch chooses it as the query.";
  }

  // The query of a patch that was clicked on.
  function patchUnder(event) {
    const { rows, columns, first } = part().picture, box = at("over").getBoundingClientRect();
    const y = Math.floor((event.clientY - box.top) / box.height * rows);
    const x = Math.floor((event.clientX - box.left) / box.width * columns);
    return first + Math.min(Math.max(y, 0), rows - 1) * columns + Math.min(Math.max(x, 0), columns - 1);
  }

  // ---- what the words say ----

  function tell() {
    const { query, key } = state.hover ? { query: state.hover[0], key: state.hover[1] } : state;
    const p = cells[query * part().key.count + key], readout = at("readout");
    const head = part().heads > 1 ? (state.head === "mean" ? "mean of the heads, " : `head ${state.head}, `) : "";
    const layer = part().layers > 1 ? `${visible(part().layerName)} ${state.layer}, ` : "";
    const words = `${named(part().query, query)} attends to ${named(part().key, key)}: ${shown(p)}`;
    readout.textContent = layer + head + words;
    Object.assign(readout.dataset, { query, key, value: String(p) });
  }

  function tellTop() {
    const { query } = state, columns = part().key.count, rows = at("top-rows");
    const order = Array.from({ length: columns }, (_, i) => i).filter((i) => !Number.isNaN(cells[query * columns + i]));
    order.sort((a, b) => cells[query * columns + b] - cells[query * columns + a] || a - b);
    at("top-of").textContent = `What ${named(part().query, query)} attends to most`;
    at("top-key").textContent = visible(part().key.name);
    rows.replaceChildren(...order.slice(0, 10).map((key, place) => {
      const row = document.createElement("tr");
      for (const text of [String(place + 1), named(part().key, key), shown(cells[query * columns + key])]) {
        const cell = document.createElement("td");
        cell.textContent = text;
        row.append(cell);
      }
      return row;
    }));
  }

  function tellCell() {
    const cell = at("cell");
    cell.textContent = `${named(part().query, state.query)}, ${named(part().key, state.key)}: ` +
      shown(cells[state.query * part().key.count + state.key]);
    cell.setAttribute("aria-colindex", state.key + 1);
    at("row").setAttribute("aria-rowindex", state.query + 1);
  }

  // ---- moving ----

  function resize(size) {
    state.size = Math.min(Math.max(size, SMALLEST), LARGEST);
    space.style.width = `${state.left + part().key.count * state.size + 2}px`;
    space.style.height = `${state.top + part().query.count * state.size + 2}px`;
  }

  function fit() {
    const wide = (map.clientWidth - state.left - 4) / part().key.count;
    const high = (map.clientHeight - state.top - 4) / part().query.count;
    // Long axes are scrolled, not squeezed until nothing can be told apart.
    resize(Math.min(48, Math.max(Math.min(wide, high), SMALLEST)));
  }

  // The cell in focus stays where it is, and in sight.
  function zoom(factor) {
    const key = (state.key + 0.5) * state.size - map.scrollLeft, query = (state.query + 0.5) * state.size - map.scrollTop;
    resize(factor > 1 ? Math.max(state.size * factor, state.size + 1) : state.size * factor);
    map.scrollLeft = (state.key + 0.5) * state.size - key;
    map.scrollTop = (state.query + 0.5) * state.size - query;
    reveal();
    draw();
  }

  function reveal() {
    const x = state.key * state.size, y = state.query * state.size;
    const wide = map.clientWidth - state.left, high = map.clientHeight - state.top;
    if (x < map.scrollLeft) map.scrollLeft = x;
    if (x + state.size > map.scrollLeft + wide) map.scrollLeft = x + state.size - wide + 2;
    if (y < map.scrollTop) map.scrollTop = y;
    if (y + state.size > map.scrollTop + high) map.scrollTop = y + state.size - high + 2;
  }

  function go(query, key) {
    state.hover = null;
    state.query = Math.min(Math.max(query, 0), part().query.count - 1);
    state.key = Math.min(Math.max(key, 0), part().key.count - 1);
    reveal();
    refresh();
  }

  function refresh() {
    draw();
    drawPicture();
    tell();
    tellTop();
    tellCell();
  }

  function options(select, field, count, name, mean) {
    const choices = Array.from({ length: count }, (_, i) => new Option(name(i), i));
    if (mean && count > 1) choices.push(new Option("mean", "mean"));
    select.replaceChildren(...choices);
    field.hidden = count < 2;
  }

  // After the part, the layer or the head has changed.
  function show() {
    at("layer").value = state.layer;
    at("head").value = state.head;
    cells = matrix();
    largest = 0;
    for (const p of cells) if (p > largest) largest = p;
    const scale = { head: largest, query: NaN, one: 1 }[at("full").value];
    at("most").textContent = Number.isNaN(scale) ? "each query’s largest" : shown(scale);
    const stops = Array.from({ length: 17 }, (_, i) => `rgb(${colour(ramp(), strength(i / 16, 1)).join()})`);
    at("ramp").style.background = `linear-gradient(to right, ${stops.join()})`;
    const layer = part().layers > 1 ? `, ${visible(part().layerName)} ${state.layer}` : "";
    const head = part().heads > 1 ? `, head ${state.head}` : "";
    map.setAttribute("aria-label", `Heat map, ${visible(part().query.name)} by ${visible(part().key.name)}${layer}${head}`);
    refresh();
  }

  function showPart() {
    const { layers, heads, layerName, query, key } = part();
    Object.assign(state, { layer: Math.min(state.layer, layers - 1), query: Math.min(state.query, query.count - 1),
      key: Math.min(state.key, key.count - 1), hover: null });
    if (state.head === "mean" ? heads < 2 : state.head >= heads) state.head = 0;
    at("part").value = state.part;
    at("layer-name").textContent = visible(layerName);
    options(at("layer"), at("layer-field"), layers, (i) => String(i));
    options(at("head"), at("head-field"), heads, (i) => String(i), true);
    pen.font = "12px system-ui, sans-serif";
    state.left = margin(query);
    state.top = margin(key);
    map.setAttribute("aria-rowcount", query.count);
    map.setAttribute("aria-colcount", key.count);
    fit();
    show();
  }

  function turn(name, by) {
    const select = at(name), count = select.options.length;
    select.selectedIndex = (select.selectedIndex + by + count) % count;
    state[name] = select.value === "mean" ? "mean" : Number(select.value);
    show();
  }

  // ---- events ----

  const moves = {
    ArrowLeft: () => [state.query, state.key - 1], ArrowRight: () => [state.query, state.key + 1],
    ArrowUp: () => [state.query - 1, state.key], ArrowDown: () => [state.query + 1, state.key],
    PageUp: () => [state.query - 10, state.key], PageDown: () => [state.query + 10, state.key],
    Home: (event) => [event.ctrlKey ? 0 : state.query, 0],
    End: (event) => [event.ctrlKey ? Infinity : state.query, Infinity],
  };
  const commands = {
    h: () => turn("head", 1), H: () => turn("head", -1), l: () => turn("layer", 1), L: () => turn("layer", -1),
    "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: () => { fit(); go(state.query, state.key); },
  };

  map.addEventListener("keydown", (event) => {
    const move = moves[event.key];
    if (!move || event.altKey || event.metaKey || (event.ctrlKey && !/^(Home|End)$/.test(event.key))) return;
    event.preventDefault();
    go(...move(event));
  });
  document.addEventListener("keydown", (event) => {
    const command = Object.hasOwn(commands, event.key) && commands[event.key];
    if (!command || event.ctrlKey || event.altKey || event.metaKey || event.target.matches("select")) return;
    event.preventDefault();
    command();
  });

  function under(event) {
    const box = map.getBoundingClientRect();
    const x = event.clientX - box.left - map.clientLeft, y = event.clientY - box.top - map.clientTop;
    const query = Math.floor((y - state.top + map.scrollTop) / state.size);
    const key = Math.floor((x - state.left + map.scrollLeft) / state.size);
    const inside = x >= state.left && y >= state.top && x < map.clientWidth && y < map.clientHeight;
    return inside && query < part().query.count && key < part().key.count ? [query, key] : null;
  }
  at("over").addEventListener("click", (event) => go(patchUnder(event), state.key));
  map.addEventListener("mousemove", (event) => { state.hover = under(event); draw(); drawPicture(); tell(); });
  map.addEventListener("mouseleave", () => { state.hover = null; draw(); drawPicture(); tell(); });
  map.addEventListener("click", (event) => { const cell = under(event); if (cell) go(...cell); });
  map.addEventListener("scroll", () => { state.hover = null; draw(); });
  at("picker").addEventListener("submit", (event) => event.preventDefault());
  at("part").addEventListener("change", () => { state.part = Number(at("part").value); showPart(); });
  for (const name of ["layer", "head"]) at(name).addEventListener("change", () => turn(name, 0));
  for (const name of ["full", "root"]) at(name).addEventListener("change", show);
  at("smaller").addEventListener("click", () => zoom(1 / 1.5));
  at("larger").addEventListener("click", () => zoom(1.5));
  at("fit").addEventListener("click", commands[0]);
  darkScheme.addEventListener("change", show);
  window.addEventListener("resize", draw);

  at("title").textContent = document.title = visible(about.title);
  options(at("part"), at("part-field"), about.parts.length, (i) => visible(about.parts[i].name));
  showPart();
})();
