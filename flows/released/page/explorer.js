// What a page with the release inside can do: it starts DuckDB in a worker and asks the release's own macros.
// The script runs twice: on the page, and in the worker before the engine, where it reads Parquet. (It is not strict:
// the engine behind it would be, too.)

const isPage = typeof document !== "undefined";
const at = id => document.getElementById(id);

// ---- the engine: messages to DuckDB's worker and back

const waiting = new Map();
let worker, connection, asked = 0;

function ask(type, data, transfer = []) {
  return new Promise((resolve, reject) => {
    waiting.set(++asked, { resolve, reject });
    worker.postMessage({ messageId: asked, type, data }, transfer);
  });
}

function answered({ data: { requestId, type, data } }) {
  if (!waiting.has(requestId) || type === "INSTANTIATE_PROGRESS") return;
  const { resolve, reject } = waiting.get(requestId);
  waiting.delete(requestId);
  type === "ERROR" ? reject(new Error(data.message)) : resolve(data);
}

function broken() {
  for (const { reject } of waiting.values()) reject(new Error("Out of Memory Error"));
  waiting.clear();
}

async function unpacked(id) {
  const text = at(id).textContent.trim();
  at(id).remove(); // its text is as large as the engine
  const packed = Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), one => one.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function start(script) {
  const step = (share, words) => { at("starting").value = share; say("state", words); };
  step(0.1, "Unpacking the engine …");
  const [engine, release] = await Promise.all([unpacked("engine"), unpacked("release-file")]);
  step(0.4, "Starting the engine …");
  const place = engine.indexOf(0); // scripts up to the first zero, from which the module goes on
  const parts = [script, "\n", engine.subarray(0, place)];
  worker = new Worker(URL.createObjectURL(new Blob(parts, { type: "text/javascript" })));
  worker.onmessage = answered;
  worker.onerror = broken;
  const wasm = engine.slice(place).buffer;
  await ask("own module", wasm, [wasm]);
  await ask("INSTANTIATE", ["data:,", null]);
  step(0.9, "Opening the release …");
  await ask("OPEN", { path: ":memory:" });
  connection = await ask("CONNECT", null);
  await ask("REGISTER_FILE_BUFFER", ["release.duckdb", release], [release.buffer]);
  await run("SET autoinstall_known_extensions = false; SET autoload_known_extensions = false");
  await run("ATTACH 'release.duckdb' AS rel (READ_ONLY)");
  at("starting").remove();
  say("state", "Ready.");
  for (const one of document.querySelectorAll("#explorer :disabled")) one.disabled = false;
  document.documentElement.dataset.explorer = "ready";
}

const run = sql => ask("RUN_QUERY", [connection, sql]);

// What a query gives, as the bytes of a CSV file: numbers have all of their digits there.
async function queried(sql) {
  const file = `${asked}.csv`; // a new one: of a query that failed a part may be left
  try {
    await run(`COPY (${sql}\n) TO '${file}' (FORMAT csv, HEADER)`);
    return await ask("COPY_FILE_TO_BUFFER", file);
  } finally {
    await ask("DROP_FILE", file);
  }
}

async function rowsOf(sql) {
  const [names, ...rows] = parsed(new TextDecoder().decode(await queried(sql)));
  return rows.map(row => Object.fromEntries(names.map((name, nth) => [name, row[nth]])));
}

// Records of a CSV text, `most` at most; what is empty and not quoted is null.
function parsed(text, delimiter = ",", most = Infinity) {
  const rows = [];
  let row = [], here = 0;
  while (here < text.length && rows.length < most) {
    let value = null;
    if (text[here] === '"') {
      let end = here;
      do end = text.indexOf('"', end + 1) + 1 || text.length + 1; while (text[end] === '"');
      value = text.slice(here + 1, end - 1).replaceAll('""', '"');
      here = end;
    } else {
      const from = here;
      while (here < text.length && !`${delimiter}\r\n`.includes(text[here])) here++;
      value = here > from ? text.slice(from, here) : null;
    }
    row.push(value);
    if (text[here] === delimiter && ++here < text.length) continue;
    if (text[here] === "\r") here++;
    if (text[here] === "\n") here++;
    else if (here < text.length && text[here - 1] !== "\r") continue;
    rows.push(row);
    row = [];
  }
  return rows;
}

// ---- words

const number = value => value.toLocaleString("en");
const say = (id, words) => { at(id).textContent = words; };

class Plain extends Error {} // its message is for people already

function plain(error) {
  const text = String(error.message).replace(/^(Invalid Input|Binder|Catalog|Parser|Conversion|IO) Error: /, "");
  if (error instanceof Plain) return text;
  if (/out of memory|allocat|memory access|unreachable|bad_alloc/i.test(text))
    return "The memory that a browser gives to one page is used up. Load the page anew and ask of fewer rows at once.";
  if (/extension|http|XMLHttpRequest|NetworkError/i.test(text))
    return `This page reaches no network, and of DuckDB it has what needs none. (${text.split("\n")[0]})`;
  return text.split("\n\nLINE ")[0];
}

async function attempted(place, task) {
  const buttons = [...document.querySelectorAll("#explorer :is(button, input, select, textarea)")];
  for (const one of buttons) one.disabled = true;
  document.documentElement.dataset.explorer = "working";
  at(place).className = "";
  say(place, "Working …");
  try {
    await task();
  } catch (error) {
    at(place).className = "s-alert";
    say(place, plain(error));
  }
  for (const one of buttons) one.disabled = false;
  document.documentElement.dataset.explorer = "ready";
}

// ---- a table of segments

let table; // what was handed in: how its columns are called, and SQL that reads them by their place

const quoted = text => `'${text.replaceAll("'", "''")}'`;

async function opened(file) {
  const last = new Uint8Array(await file.slice(Math.max(file.size - 4, 0)).arrayBuffer());
  const isParquet = /\.parquet$/i.test(file.name) || String.fromCharCode(...last) === "PAR1";
  if (!file.size) throw new Plain("The file is empty.");
  const { names, delimiter } = isParquet ? { names: await ask("own names", file) } : await headOf(file);
  const twice = names.find((name, nth) => name && names.indexOf(name) < nth);
  if (twice) throw new Plain(`The column ${twice} stands there twice; leave one of them out.`);
  if (!names.includes("unit_id"))
    throw new Plain(`There is no column unit_id. The columns are: ${names.slice(0, 8).join(", ")}${
      names.length > 8 ? ", …" : ""}. Is the file a table, with the names of its columns in the first row?`);
  const others = names.filter(name => name && name !== "unit_id");
  if (!others.length) throw new Plain("There is no column besides unit_id; one with the segments is needed.");
  return { file, names, others, delimiter, isParquet };
}

async function headOf(file) {
  const start = await file.slice(0, 1 << 20).arrayBuffer();
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(start, { stream: true });
  } catch {
    throw new Plain("The file is neither Parquet nor CSV in UTF-8. Save it as one of them.");
  }
  const heads = [",", ";", "\t", "|"].map(delimiter =>
    ({ names: (parsed(text, delimiter, 1)[0] ?? []).map(name => name ?? ""), delimiter }));
  return heads.find(({ names }) => names.length > 1 && names.includes("unit_id")) ?? heads[0];
}

// Makes the table `mine` of unit_id and segment, as text.
async function read(segment) {
  let { file, names, delimiter } = table;
  let bytes, wanted = [names.indexOf("unit_id"), names.indexOf(segment)];
  if (table.isParquet) {
    bytes = await ask("own columns", { file, wanted: ["unit_id", segment] });
    [wanted, names, delimiter] = [[0, 1], ["unit_id", segment], ","];
  } else bytes = new Uint8Array(await file.arrayBuffer());
  await ask("REGISTER_FILE_BUFFER", ["table.csv", bytes], [bytes.buffer]);
  const columns = names.map((_, nth) => `'c${nth}': 'VARCHAR'`).join(", ");
  const [id, value] = wanted.map(nth => `c${nth}`);
  try {
    await run(`CREATE OR REPLACE TABLE memory.main.mine AS SELECT nullif(${id}, '') AS unit_id, ${value} AS segment
      FROM read_csv('table.csv', auto_detect = false, header = true, delim = ${quoted(delimiter)}, quote = '"',
        escape = '"', nullstr = '', allow_quoted_nulls = false, columns = {${columns}})`);
  } catch (error) {
    const [, line] = /line:? (\d+)/i.exec(error.message) ?? [];
    if (!/CSV Error/i.test(error.message)) throw error;
    const why = /unicode|utf-?8/i.test(error.message) ? "is not in UTF-8"
      : /unterminated quote/i.test(error.message) ? "has a quotation mark that does not end"
      : /maximum line size/i.test(error.message) ? "is longer than any line of a table should be"
      : `does not have ${names.length} values, as the first row has`;
    throw new Plain(`The file cannot be read as a table: ${line ? `line ${number(+line)}` : "a line"} ${why}.`);
  } finally {
    await ask("DROP_FILE", "table.csv");
  }
}

const FIT = `SELECT count(*) AS n_rows, count(*) - count(s) AS n_missing, count(s) - count(DISTINCT s) AS n_copies,
    count(DISTINCT s.unit_id) AS n_ids,
    count(DISTINCT s.unit_id) FILTER (s.unit_id IN (SELECT unit_id::VARCHAR FROM rel.units)) AS n_found
  FROM (SELECT CASE WHEN unit_id IS NOT NULL AND segment IS NOT NULL THEN m END AS s FROM memory.main.mine AS m)`;

async function estimated(segment) {
  await read(segment);
  const [fit] = await rowsOf(FIT);
  if (fit.n_ids === "0") throw new Plain(`None of the table’s ${number(+fit.n_rows)} rows has an id and a segment.`);
  const bytes = await queried("FROM rel.ate_by_segment('mine', 'rel')");
  const [names, ...rows] = parsed(new TextDecoder().decode(bytes));
  const texts = new Set(["segment", "arm", "metric", "control", "estimator", "effect", "note"]);
  const found = rows.map(row => Object.fromEntries(names.map((name, nth) =>
    [name, texts.has(name) || row[nth] === null ? row[nth] : Number(row[nth])])));
  const misfits = [
    [fit.n_ids - fit.n_found, "units of the table are not in the release."],
    [+fit.n_copies, "rows repeat another and count once."],
    [+fit.n_missing, "rows lack an id or a segment and are left out."],
  ].filter(([count]) => count > 0).map(([count, words]) => `${number(count)} ${words}`);
  say("said", [`${number(+fit.n_found)} of ${number(+fit.n_ids)} units of the table are in the release.`, ...misfits]
    .join(" "));
  drawn(found, segment);
  saved("save-segments", bytes, "segments");
}

// ---- effects by segment, in the rows of the page: see rows.py

const MOST_SEGMENTS = 30;

// Holm's p-values of one arm's effects in several segments.
function adjusted(rows) {
  const known = rows.filter(row => row.p_value !== null).sort((one, other) => one.p_value - other.p_value);
  let least = 0;
  known.forEach((row, nth) => {
    least = Math.max(least, Math.min((known.length - nth) * row.p_value, 1));
    row.holm = least;
  });
}

function verdictOf(row, metric, count) {
  if (row.estimate === null || row.ci_lower === null)
    return { sign: "none", word: "cannot be told", tone: "calm", note: row.note ?? "Too few of its units can be compared." };
  const doubt = row.note ? "?" : "";
  const calm = { sign: "calm", word: `no clear difference${doubt}`, tone: "calm", note: row.note };
  if (row.ci_lower <= 0 && row.ci_upper >= 0) return calm;
  if (!(row.holm < 1 - row.confidence_level)) {
    const why = `Its interval leaves zero out, but of ${count} segments one may do so by chance (Holm).`;
    return { ...calm, note: [row.note, why].filter(Boolean).join(" ") };
  }
  const isUp = row.estimate > 0;
  const isGood = metric.direction ? isUp === (metric.direction === "increase") : isUp;
  const words = metric.direction ? ["better", "worse"] : ["higher", "lower"];
  return { sign: isUp ? "up" : "down", word: words[isGood ? 0 : 1] + doubt, tone: isGood ? "up" : "down", note: row.note };
}

function fixed(value, decimals, isSigned) {
  const size = decimals > 6 || Math.abs(value) >= 1e9 ? Math.abs(value).toPrecision(3)
    : Math.abs(value).toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  const isZero = !/[1-9]/.test(size);
  return (isZero ? "" : value < 0 ? "−" : isSigned ? "+" : "") + size;
}

function spanOf(rows, factor) {
  const ends = rows.filter(row => row.estimate !== null)
    .map(row => [row.estimate, row.ci_lower ?? row.estimate, row.ci_upper ?? row.estimate].map(one => factor * one));
  const reaches = ends.map(one => Math.max(...one.map(Math.abs))).sort((one, other) => one - other);
  const usual = 3 * (reaches[(reaches.length - 1) >> 1] ?? 0);
  const most = Math.max(usual, ...ends.map(([estimate]) => 1.05 * Math.abs(estimate)));
  const all = ends.flat().map(end => Math.min(Math.max(end, -most), most));
  return [0 - Math.min(0, ...all), Math.max(0, ...all)];
}

// A metric's arms have one ruler, but for those that would need a tenth of it.
function spansOf(arms, factor) {
  const spans = arms.map(one => spanOf(one.rows, factor));
  const shared = [0, 1].map(end => Math.max(...spans.map(one => one[end])));
  return spans.map(one => (one[0] + one[1] >= 0.1 * (shared[0] + shared[1]) ? shared : one));
}

// One zero for all metrics, where the narrowest is as wide as it can be; a number x lies at zero + per · x per cent.
function placed(spans) {
  let best = { width: -1 };
  for (let zero = 4; zero < 97; zero++) {
    const pers = spans.map(([below, above]) => Math.min((zero - 2) / below, (98 - zero) / above));
    const width = Math.min(...spans.map(([below, above], nth) => (below + above ? pers[nth] * (below + above) : Infinity)));
    if (width > best.width) best = { width, zero, pers };
  }
  return best.pers.map(per => ({ zero: best.zero, per: Number.isFinite(per) ? per : 0 }));
}

function ticksOf({ zero, per }) {
  if (!per) return [[zero, "0"]];
  const low = -zero / per, high = (100 - zero) / per, size = 10 ** Math.floor(Math.log10(high - low));
  for (const step of [0.1, 0.2, 0.25, 0.5, 1, 2, 2.5, 5].map(one => one * size)) {
    const decimals = [...Array(7).keys()].find(n => Math.abs(+step.toFixed(n) - step) < 1e-9 * step) ?? 7;
    const whole = [];
    for (let nth = Math.ceil(low / step); nth <= Math.floor(high / step); nth++) whole.push(nth * step);
    const labels = whole.map(one => (one ? fixed(one, decimals, true) : "0"));
    if (labels.length * (Math.max(...labels.map(one => one.length)) + 2) * 7 <= 270)
      return whole.map((one, nth) => [zero + per * one, labels[nth]]);
  }
  return [[zero, "0"]];
}

const clone = name => at("asked-template").content.querySelector(name).cloneNode(true);
const tenth = value => `${value.toFixed(1)}%`;

function drawn(found, segment) {
  const metrics = [...new Set(found.map(row => row.metric))].map(metric => {
    const mine = found.filter(row => row.metric === metric);
    const sharpest = mine.filter(row => row.estimator === mine[0].estimator);
    const facts = FACTS.metrics[metric];
    const arms = [...new Set(sharpest.map(row => row.arm))].map(arm => {
      const rows = sharpest.filter(row => row.arm === arm);
      adjusted(rows);
      const kept = [...rows].sort((one, other) => other.n_segment - one.n_segment).slice(0, MOST_SEGMENTS);
      return { arm, count: rows.length, rows: rows.filter(row => kept.includes(row)) };
    });
    return { ...facts, arms };
  });
  const spans = metrics.flatMap(one => spansOf(one.arms, one.factor));
  const whole = clone("table"), rulers = placed(spans);
  whole.querySelectorAll("tbody").forEach(one => one.remove());
  whole.querySelector(".a").textContent = segment;
  whole.querySelector(".n").textContent = "Units compared";
  whole.querySelector("thead .bar").replaceChildren(...[["◂ lower", -8, "end"], ["higher ▸", 8, "start"]]
    .map(([words, dx, anchor]) => shape("text", { x: tenth(rulers[0].zero), dx, y: "1em", "text-anchor": anchor }, words)));
  metrics.flatMap(metric => metric.arms.map(one => [metric, one])).forEach(([metric, one], nth) => {
    whole.append(bodyOf(metric, one, rulers[nth], `asked-${spans.indexOf(spans[nth])}`, !spans.includes(spans[nth], nth + 1)));
  });
  at("answers").replaceChildren(whole);
  const most = Math.max(...metrics.flatMap(one => one.arms.map(arm => arm.count)));
  if (most > MOST_SEGMENTS)
    say("said", `${at("said").textContent} The ${MOST_SEGMENTS} largest of ${number(most)} segments are drawn; the saved table has all.`);
}

function shape(name, attributes, words = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = words;
  return made;
}

function bodyOf(metric, { arm, rows, count }, ruler, mark, hasRuler) {
  const body = clone("tbody"), line = clone("tr.r");
  body.replaceChildren(body.querySelector(".mr"));
  const [head, about] = [body.querySelector(".m"), body.querySelector(".m span")];
  about.textContent = metric.about;
  head.replaceChildren(named(metric.name), ", ", named(arm), " ", about);
  const halves = rows.filter(row => row.ci_lower !== null).map(row => metric.factor * (row.ci_upper - row.ci_lower) / 2);
  const least = Math.min(...halves.filter(half => half > 0));
  const decimals = Number.isFinite(least) ? Math.max(1 - Math.floor(Math.log10(least)), 0) : 0;
  for (const row of rows) {
    const made = line.cloneNode(true), verdict = verdictOf(row, metric, count);
    const isOpen = row.ci_lower === null || (row.ci_lower <= 0 && row.ci_upper >= 0);
    made.className = `r ${verdict.tone}${isOpen ? " open" : ""}`;
    const put = (cell, words) => made.querySelector(cell).replaceChildren(words);
    const shown = (value, isSigned) => fixed(metric.factor * value, decimals, isSigned);
    put(".v b", verdict.word);
    made.querySelector(".v b").className = `s-${verdict.sign}`;
    put(".a", named(row.segment));
    put(".e b", row.estimate === null ? "–" : shown(row.estimate, true));
    put(".e small", row.ci_lower === null ? "" : `${shown(row.ci_lower)} to ${shown(row.ci_upper)}`);
    put(".n", number(row.n_units ?? 0));
    if (row.coverage !== null && row.coverage < 1)
      made.querySelector(".n").append(Object.assign(document.createElement("small"),
        { textContent: ` ${+(100 * row.coverage).toPrecision(3)} % of it` }));
    draw(made.querySelector(".bar"), row, metric.factor, ruler, mark);
    body.append(made);
    if (verdict.note) {
      const note = clone("tr.note");
      note.querySelector("td").textContent = verdict.note;
      body.append(note);
    }
  }
  const scale = clone("tr.ruler"), ticks = ticksOf(ruler), lines = scale.querySelector("g");
  lines.id = mark;
  lines.replaceChildren(...ticks.map(([x, label]) =>
    shape("line", { class: label === "0" ? "z" : "t", x1: tenth(x), x2: tenth(x), y2: "100%" })));
  scale.querySelectorAll("text").forEach(one => one.remove());
  scale.querySelector("svg").append(...ticks.map(([x, label]) => shape("text", { x: tenth(x), y: "1em" }, label)));
  if (hasRuler) body.append(scale);
  return body;
}

function draw(bar, row, factor, { zero, per }, mark) {
  bar.querySelector("use").setAttribute("href", `#${mark}`);
  const drawing = bar.querySelector("svg");
  if (row.estimate === null) return drawing.remove();
  const place = value => Math.min(Math.max(zero + per * factor * value, 0), 100);
  const inner = Math.sqrt(Math.max(1 - (row.privacy_std_error / row.std_error) ** 2 || 0, 0));
  const stretch = (kind, share) => {
    const [low, high] = [row.ci_lower, row.ci_upper].map(end => place(row.estimate + share * (end - row.estimate)));
    const made = drawing.querySelector(kind);
    made.setAttribute("x", tenth(low));
    made.setAttribute("width", tenth(high - low));
  };
  if (row.ci_lower === null) drawing.querySelectorAll("rect").forEach(one => one.remove());
  else {
    stretch(".o", 1);
    if (inner) stretch(".i", inner);
    else drawing.querySelector(".i").remove();
    for (const [end, x, path] of [[row.ci_lower, 0, "M0-6-8 0 0 6z"], [row.ci_upper, 100, "M0-6 8 0 0 6z"]]) {
      const exact = zero + per * factor * end;
      if (exact >= 0 && exact <= 100) continue;
      drawing.append(shape("svg", { x: `${x}%` }));
      drawing.lastChild.append(shape("path", { d: path }));
    }
  }
  const dot = drawing.querySelector(".d");
  dot.setAttribute("cx", tenth(place(row.estimate)));
  drawing.append(dot); // over the rest
}

function named(text) {
  return Object.assign(document.createElement("bdi"), { textContent: text.trim() ? text : "(blank)" });
}

// ---- SQL of one's own

const MOST_ROWS = 200;

// The last statement's rows; those before it are carried out.
async function asking() {
  listed(null);
  const { offsets, types } = await ask("TOKENIZE", at("sql").value);
  const bytes = new TextEncoder().encode(at("sql").value), decode = part => new TextDecoder().decode(part).trim();
  const ends = offsets.filter((offset, nth) => types[nth] === 3 && bytes[offset] === 59);
  const last = ends.findLast(end => offsets.some((offset, nth) => offset > end && types[nth] !== 5 && bytes[offset] !== 59)) ?? -1;
  const stop = ends.find(end => end > last) ?? bytes.length;
  const before = decode(bytes.subarray(0, last + 1)), statement = decode(bytes.subarray(last + 1, stop));
  if (before) await run(before);
  if (!statement) throw new Plain("There is nothing to run.");
  if (/^(\(|select|from|with|values|table|pivot|unpivot)/i.test(statement.replace(/^(\s|--.*\n|\/\*[^]*?\*\/)*/, "")))
    listed(await queried(statement));
  else if (/^(show|describe|summarize)\b/i.test(statement)) listed(await queried(`FROM (${statement})`));
  else {
    await run(statement);
    say("sql-said", "Done.");
  }
}

function listed(bytes) {
  at("result").replaceChildren();
  at("save-sql").hidden = true;
  if (!bytes) return;
  const [names = [], ...rows] = parsed(new TextDecoder().decode(bytes));
  const cell = (kind, words) => Object.assign(document.createElement(kind), { textContent: words ?? "–" });
  const line = (kind, cells) => {
    const made = document.createElement("tr");
    made.append(...cells.map(one => cell(kind, one)));
    return made;
  };
  const whole = document.createElement("table"), body = document.createElement("tbody");
  whole.className = "plain";
  whole.createTHead().append(line("th", names));
  body.append(...rows.slice(0, MOST_ROWS).map(row => line("td", row)));
  whole.append(body);
  at("result").append(whole);
  say("sql-said", `${number(rows.length)} ${rows.length === 1 ? "row" : "rows"}${
    rows.length > MOST_ROWS ? `; the first ${MOST_ROWS} are shown, the saved table has all` : ""}.`);
  saved("save-sql", bytes, "result");
}

function saved(id, bytes, name) {
  const link = at(id);
  URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([bytes], { type: "text/csv" }));
  link.download = `${FACTS.release}.${name}.csv`;
  link.hidden = false;
}

// ---- the page

function choose(files) {
  if (!files.length || at("table").disabled) return;
  at("columns").hidden = at("save-segments").hidden = true;
  at("answers").replaceChildren();
  attempted("said", async () => {
    await run("DROP TABLE IF EXISTS memory.main.mine");
    table = await opened(files[0]);
    const { others } = table, first = others.includes("segment") ? "segment" : others[0];
    at("column").replaceChildren(...others.map(name => new Option(name, name, false, name === first)));
    at("columns").hidden = others.length < 2;
    await estimated(first);
  });
}

// What another ε would do: all of it was worked out when the page was made.
function moved() {
  const { epsilon, isOwn, odds, most, halves } = FACTS.forecasts[at("slider").value];
  const metrics = Object.values(FACTS.metrics), list = document.createElement("ul");
  list.append(...[
    [`ε = ${epsilon}${isOwn ? " (this release)" : ""}: the odds of a guess times ${odds} at most; 50 % become ${most} at most.`],
    ...halves.map((half, nth) => [named(metrics[nth].name), `: ${half} ${metrics[nth].step}`]),
  ].map(words => {
    const line = document.createElement("li");
    line.append(...words);
    return line;
  }));
  at("at-epsilon").replaceChildren(list);
  at("slider").setAttribute("aria-valuetext", `ε = ${epsilon}`);
}

function listen() {
  const box = at("drop"), slider = at("slider");
  slider.max = FACTS.forecasts.length - 1;
  slider.value = FACTS.forecasts.findIndex(one => one.isOwn);
  slider.oninput = moved;
  moved();
  at("run").onclick = () => attempted("sql-said", asking);
  at("sql").onkeydown = event => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("run").click();
  };
  for (const kind of ["dragover", "drop"]) document.addEventListener(kind, event => event.preventDefault());
  if (!box) return;
  at("table").onchange = () => choose(at("table").files);
  at("column").onchange = () => attempted("said", () => estimated(at("column").value));
  for (const kind of ["dragover", "dragleave", "drop"])
    box.addEventListener(kind, event => box.classList.toggle("over", event.type === "dragover"));
  box.addEventListener("drop", event => choose(event.dataTransfer.files));
}

let FACTS;
if (isPage) {
  FACTS = JSON.parse(at("facts").textContent);
  listen();
  const script = document.currentScript.textContent;
  setTimeout(() => start(script).catch(error => {
    at("starting")?.remove();
    at("state").className = "s-alert";
    say("state", `The engine cannot start in this browser; everything else on the page stands. (${plain(error)})`);
  }));
} else {
  const own = { "own module": keep, "own names": namesOf, "own columns": columnsOf };
  addEventListener("message", async event => {
    const { messageId, type, data } = event.data;
    if (!(type in own)) return;
    event.stopImmediatePropagation(); // what is not for the engine
    try {
      const found = await own[type](data);
      postMessage({ requestId: messageId, type: "OK", data: found }, found?.buffer ? [found.buffer] : []);
    } catch (error) {
      const isBroken = error instanceof RangeError || error instanceof TypeError;
      const message = isBroken ? "The file is not whole, or no Parquet file." : error.message;
      postMessage({ requestId: messageId, type: "ERROR", data: { message } });
    }
  });
}

// The engine asks for its module as for a file of a server; it gets what the page has, and nothing else.
function keep(module) {
  globalThis.XMLHttpRequest = class { constructor() { throw new Error("NetworkError: there is none"); } };
  globalThis.fetch = async () => new Response(module, { headers: { "content-type": "application/wasm" } });
}

// ---- Parquet: flat columns of text, whole numbers and booleans, as text (parquet.apache.org/docs/file-format)

class Reader {
  constructor(bytes, here = 0) {
    Object.assign(this, { bytes, here, view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength) });
  }
  byte() {
    if (this.here >= this.bytes.length) throw new RangeError("cut");
    return this.bytes[this.here++];
  }
  take(count) {
    if (!(count >= 0 && this.here + count <= this.bytes.length)) throw new RangeError("cut");
    return this.bytes.subarray(this.here, (this.here += count));
  }
  uint32() { return this.view.getUint32((this.here += 4) - 4, true); }
  varint() {
    for (let value = 0, scale = 1; ; scale *= 128) {
      const byte = this.byte();
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  }
  zigzag() {
    const value = this.varint();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  }
  big() {
    for (let value = 0n, shift = 0n; ; shift += 7n) {
      const byte = this.byte();
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value & 1n ? -(value >> 1n) - 1n : value >> 1n;
    }
  }
  // A value of Thrift's compact protocol; structs are objects by the numbers of their fields.
  thrift(kind = 12) {
    if (kind === 1 || kind === 2) return kind === 1;
    if (kind === 3) return this.byte();
    if (kind <= 6) return this.zigzag();
    if (kind === 7) return this.take(8);
    if (kind === 8) return this.take(this.varint());
    if (kind === 9 || kind === 10) {
      const head = this.byte(), count = head >> 4 === 15 ? this.varint() : head >> 4, found = [];
      while (found.length < count) found.push((head & 15) < 3 ? this.byte() === 1 : this.thrift(head & 15));
      return found;
    }
    if (kind !== 12) throw new RangeError("cut");
    const found = {};
    for (let id = 0, head; (head = this.byte()); ) {
      id = head >> 4 ? id + (head >> 4) : this.zigzag();
      found[id] = this.thrift(head & 15);
    }
    return found;
  }
  // Runs and packed numbers, `count` of them (RLE hybrid).
  hybrid(width, count) {
    const found = new Int32Array(count), bytes = (width + 7) >> 3;
    for (let nth = 0; nth < count; ) {
      const head = this.varint();
      if (head & 1) {
        const packed = unpack(this, width, Math.min((head >> 1) * 8, count - nth), (head >> 1) * width);
        found.set(packed, nth);
        nth += packed.length;
      } else {
        let value = 0;
        for (let one = 0; one < bytes; one++) value += this.byte() * 2 ** (8 * one);
        found.fill(value, nth, (nth += head >> 1));
        if (!(head >> 1)) throw new RangeError("cut");
      }
    }
    return found;
  }
  // DELTA_BINARY_PACKED, as big integers.
  deltas() {
    const block = this.varint(), minis = this.varint(), count = this.varint(), each = block / minis;
    const found = [this.big()];
    if (!(each >= 8)) throw new RangeError("cut");
    while (found.length < count) {
      const least = this.big(), widths = [...this.take(minis)];
      for (const width of widths) {
        if (found.length >= count) break;
        const part = new Reader(this.take((each * width) >> 3));
        let buffer = 0n, held = 0n;
        for (let nth = 0; nth < each && found.length < count; nth++) {
          while (held < width) { buffer |= BigInt(part.byte()) << held; held += 8n; }
          const delta = buffer & ((1n << BigInt(width)) - 1n);
          buffer >>= BigInt(width);
          held -= BigInt(width);
          found.push(BigInt.asIntN(64, found[found.length - 1] + least + delta));
        }
      }
    }
    return found.slice(0, count);
  }
}

function unpack(reader, width, count, size) {
  const bytes = reader.take(size), found = new Int32Array(count);
  for (let nth = 0, bit = 0; nth < count; nth++, bit += width) {
    let value = 0;
    for (let have = 0, place = bit; have < width; ) {
      const from = place & 7, taken = Math.min(8 - from, width - have);
      value += ((bytes[place >> 3] >> from) & ((1 << taken) - 1)) * 2 ** have;
      have += taken;
      place += taken;
    }
    found[nth] = value;
  }
  return found;
}

async function footOf(file) {
  const tail = new Uint8Array(await file.slice(-8).arrayBuffer()), mark = String.fromCharCode(...tail.subarray(4));
  if (mark === "PARE") throw new Error("The file is encrypted.");
  if (mark !== "PAR1" || file.size < 12) throw new RangeError("cut");
  const size = new DataView(tail.buffer).getUint32(0, true);
  if (size > file.size - 12) throw new RangeError("cut");
  const foot = new Reader(new Uint8Array(await file.slice(file.size - 8 - size, -8).arrayBuffer())).thrift();
  const [root, ...nodes] = foot[2], text = bytes => new TextDecoder().decode(bytes), fields = [];
  for (let nth = 0; nth < nodes.length; nth++) {
    const node = nodes[nth];
    fields.push({ name: text(node[4]), type: node[1], isOptional: node[3] === 1, isFlat: !node[5] && node[3] !== 2, node });
    for (let left = node[5] ?? 0; left > 0; left += (nodes[++nth][5] ?? 0) - 1);
  }
  if (fields.length !== root[5]) throw new RangeError("cut");
  return { fields, groups: foot[4] ?? [], text };
}

async function namesOf(file) {
  return (await footOf(file)).fields.map(one => one.name);
}

// What makes texts of a column's values; an error where it is neither text nor whole numbers.
function kindOf({ name, type, isFlat, node }) {
  const converted = node[6], logical = Object.keys(node[10] ?? {})[0];
  const isText = type === 6 && ([0, 4].includes(converted) || ["1", "4"].includes(logical));
  const isWhole = (type === 1 || type === 2) && (logical ? logical === "10" : converted === undefined || converted >= 11);
  if (!isFlat || !(isText || isWhole || type === 0))
    throw new Error(`The column ${name} is neither text nor whole numbers.`);
  const isUnsigned = logical ? node[10][10]?.[2] === false : converted <= 14;
  return { type, isUnsigned: isWhole && converted !== undefined && isUnsigned };
}

// A CSV file of the wanted columns.
async function columnsOf({ file, wanted }) {
  const { fields, groups, text } = await footOf(file), columns = [];
  for (const name of wanted) {
    const field = fields.find(one => one.name === name), kind = kindOf(field), values = [];
    for (const group of groups) {
      const chunk = group[1].map(one => one[3]).find(one => one[3].length === 1 && text(one[3][0]) === name);
      for (const part of await chunkOf(file, chunk, { ...kind, isOptional: field.isOptional })) values.push(part);
    }
    columns.push(values.flat());
  }
  if (columns.some(one => one.length !== columns[0].length)) throw new RangeError("cut");
  const quote = one => (one === null ? "" : `"${one.includes('"') ? one.replaceAll('"', '""') : one}"`);
  const lines = columns[0].map((id, nth) => `${quote(id)},${quote(columns[1][nth])}\n`);
  lines.unshift("unit_id,segment\n");
  return new TextEncoder().encode(lines.join(""));
}

async function chunkOf(file, meta, kind) {
  const start = Math.min(meta[9], meta[11] ?? Infinity) || meta[9], parts = [];
  const reader = new Reader(new Uint8Array(await file.slice(start, start + meta[7]).arrayBuffer()));
  let dictionary = null;
  for (let seen = 0; seen < meta[5]; ) {
    const head = reader.thrift(), body = reader.take(head[3]);
    if (head[1] === 2) dictionary = valuesOf(await inflated(meta[4], body, head[2]), 0, head[7][1], kind);
    if (head[1] !== 0 && head[1] !== 3) continue;
    const isSecond = head[1] === 3, facts = isSecond ? head[8] : head[5], count = facts[1];
    const split = isSecond ? (facts[5] ?? 0) + (facts[6] ?? 0) : 0;
    const isPacked = !isSecond || facts[7] !== false;
    const rest = isPacked ? await inflated(meta[4], body.subarray(split), head[2] - split) : body.subarray(split);
    let page = new Reader(rest), isThere = null;
    if (kind.isOptional) {
      const size = isSecond ? facts[5] : page.uint32();
      isThere = new Reader(isSecond ? body.subarray(facts[6] ?? 0, split) : page.take(size)).hybrid(1, count);
    }
    const filled = isThere ? isThere.reduce((sum, one) => sum + one, 0) : count;
    const encoding = facts[isSecond ? 4 : 2];
    let values;
    if (encoding === 2 || encoding === 8) {
      const width = filled ? page.byte() : 0;
      values = Array.from(page.hybrid(width, filled), place => dictionary[place]);
    } else values = valuesOf(page.bytes.subarray(page.here), encoding, filled, kind);
    if (values.length !== filled || values.includes(undefined)) throw new RangeError("cut");
    let next = 0;
    parts.push(isThere ? Array.from(isThere, one => (one ? values[next++] : null)) : values);
    seen += count;
    if (!count) throw new RangeError("cut");
  }
  return parts;
}

function valuesOf(bytes, encoding, count, { type, isUnsigned }) {
  const reader = new Reader(bytes), found = [];
  if (type === 0) {
    if (encoding === 3) return Array.from(new Reader(bytes, 4).hybrid(1, count), one => String(one === 1));
    return Array.from(unpack(reader, 1, count, (count + 7) >> 3), one => String(one === 1));
  }
  if (type === 6) return textsOf(reader, encoding, count);
  const bits = type === 1 ? 32 : 64;
  const shown = value => String(isUnsigned ? BigInt.asUintN(bits, value) : BigInt.asIntN(bits, value));
  if (encoding === 5) return reader.deltas().map(shown);
  if (encoding !== 0) throw new Error("The file packs its columns in a way that this page does not know; save it as CSV.");
  for (let nth = 0; nth < count; nth++) {
    if (bits === 32) found.push(String(isUnsigned ? reader.view.getUint32(4 * nth, true) : reader.view.getInt32(4 * nth, true)));
    else found.push(shown(reader.view.getBigInt64(8 * nth, true)));
  }
  return found;
}

function textsOf(reader, encoding, count) {
  const decoder = new TextDecoder(), found = [];
  // Where all is ASCII, a text is as long as its bytes, and slices of it are much faster.
  const whole = decoder.decode(reader.bytes), isPlain = whole.length === reader.bytes.length;
  const next = size => {
    const part = reader.take(size);
    return isPlain ? whole.slice(reader.here - size, reader.here) : decoder.decode(part);
  };
  if (encoding === 0) {
    for (let nth = 0; nth < count; nth++) found.push(next(reader.uint32()));
  } else if (encoding === 6) {
    for (const size of reader.deltas()) found.push(next(Number(size)));
  } else if (encoding === 7) {
    const shared = reader.deltas(), sizes = reader.deltas();
    let last = new Uint8Array();
    sizes.forEach((size, nth) => {
      const part = reader.take(Number(size)), start = last.subarray(0, Number(shared[nth]));
      const own = new Uint8Array(start.length + part.length);
      own.set(start);
      own.set(part, start.length);
      last = own;
      found.push(decoder.decode(own));
    });
  } else throw new Error("The file packs its columns in a way that this page does not know; save it as CSV.");
  return found;
}

async function inflated(codec, bytes, size) {
  if (codec === 0 || !size) return bytes;
  if (codec === 1) return snappy(new Reader(bytes), size);
  if (codec === 6) return fzstd.decompress(bytes, new Uint8Array(size));
  if (codec === 7) return lz4(new Reader(bytes), size);
  if (codec !== 2) throw new Error("The file is packed by a way that this page does not know; save it with zstd or as CSV.");
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function copied(found, here, offset, size) {
  if (!(offset > 0 && offset <= here && here + size <= found.length)) throw new RangeError("cut");
  for (let nth = 0; nth < size; nth++) found[here + nth] = found[here + nth - offset];
  return here + size;
}

function snappy(reader, size) {
  const found = new Uint8Array(size);
  if (reader.varint() !== size) throw new RangeError("cut");
  for (let here = 0; here < size; ) {
    const tag = reader.byte(), high = tag >> 2;
    const more = count => reader.take(count).reduceRight((sum, one) => sum * 256 + one, 0);
    if ((tag & 3) === 0) {
      const length = 1 + (high < 60 ? high : more(high - 59));
      found.set(reader.take(length), here);
      here += length;
    } else if ((tag & 3) === 1) here = copied(found, here, (tag >> 5) * 256 + reader.byte(), 4 + (high & 7));
    else here = copied(found, here, more((tag & 3) === 2 ? 2 : 4), 1 + high);
  }
  return found;
}

function lz4(reader, size) {
  const found = new Uint8Array(size);
  const length = start => {
    let sum = start, byte = 255;
    if (start === 15) while (byte === 255) sum += byte = reader.byte();
    return sum;
  };
  for (let here = 0; here < size; ) {
    const tag = reader.byte(), literals = reader.take(length(tag >> 4));
    found.set(literals, here);
    here += literals.length;
    if (here < size) here = copied(found, here, reader.take(2).reduceRight((sum, one) => sum * 256 + one, 0), length(tag & 15) + 4);
  }
  return found;
}
