'use strict';

/* ---- numbers as people read them ------------------------------------------------------------- */

const UNITS = ['', ' k', ' M', ' G', ' T'];

/* Three significant digits: "1.23 M", "250 k", "0.0412"; "-" if it is not a number. */
function short(value) {
  let unit = 0;
  if (!Number.isFinite(value)) return '-';
  if (value === 0) return '0';
  if (Math.abs(value) >= 999.5e12) return value.toPrecision(3);
  for (; Math.abs(value) >= 999.5; unit++) value /= 1000;
  return value.toPrecision(3) + UNITS[unit];
}

/* The same without zeros at the end: "2.5 M", "10". */
function tick(value) {
  return short(value).replace(/^-?\d[^ ]*/, digits => Number(digits));
}

/* From 1,000 on, a whole number in groups of three digits; below as short(). */
function grouped(value) {
  const size = Math.abs(value);
  return size >= 999.5 && size < 1e15 ? Math.round(value).toLocaleString('en-US') : short(value);
}

/* At least 0. What is not a number is left out. */
const largest = numbers => numbers.reduce((most, value) => value > most ? value : most, 0);

const plural = (count, what) => `${count} ${what}${count === 1 ? '' : 's'}`;

/* ---- scales of axes: {log, low, high, ticks} ------------------------------------------------- */

const SLACK = 1e-9; // relative errors of floating point
const LEAST = 1e-15, MOST = 1e15; // scales end here: a file with results may have any number

/* From 0 up to a tick that is at least `high`. Ticks are round numbers, three to five of them. */
function linear(high) {
  high = high > 0 ? Math.min(Math.max(high, LEAST), MOST) : 1;
  const power = 10 ** Math.floor(Math.log10(high / 4));
  const step = power * [1, 2, 2.5, 5, 10].find(s => 4 * s * power >= high * (1 - SLACK));
  const last = Math.ceil(high / step - SLACK);
  return {low: 0, high: last * step, ticks: Array.from({length: last + 1}, (_, n) => n * step)};
}

/* Begins and ends with 1, 2 or 5 times a power of ten. Ticks are these, or if there would be more
   than seven, powers of ten. */
function logarithmic(low, high) {
  [low, high] = [low, high].map(value => Math.min(Math.max(value, LEAST), MOST));
  const from = Math.floor(Math.log10(low) + SLACK), to = Math.ceil(Math.log10(high) - SLACK);
  const round = [];
  for (let e = from; e <= to; e++) for (const m of [1, 2, 5]) round.push(Number(`${m}e${e}`));
  const first = round.findLastIndex(r => r <= low * (1 + SLACK));
  const last = Math.max(round.findIndex(r => r >= high * (1 - SLACK)), first + 1);
  const every = 1 + Math.floor(Math.log10(round[last] / round[first]) / 7);
  const isTick = (_, i) => i >= first && i <= last &&
    (last - first < 7 || (i % 3 === 0 && (from + i / 3) % every === 0));
  return {log: true, low: round[first], high: round[last], ticks: round.filter(isTick)};
}

/* Ticks at the values themselves, except where two would be too close to each other. */
function through(values, log) {
  const sorted = [...new Set(values)].sort((a, b) => a - b);
  const scale = {log, low: sorted[0], high: sorted.at(-1), ticks: []};
  for (const value of sorted)
    if (!scale.ticks.length || place(scale, value) - place(scale, scale.ticks.at(-1)) >= 0.12)
      scale.ticks.push(value);
  return scale;
}

/* Where a value is: 0 at the scale's beginning, 1 at its end. Values beyond are at the ends. */
function place({log, low, high}, value) {
  const part = log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  return part > 0 ? Math.min(part, 1) : 0;
}

/* ---- elements -------------------------------------------------------------------------------- */

/* Makes elements. Children that are strings become text: no name in the results can be markup. */
const maker = space => (name, attributes, ...children) => {
  const element = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children.flat());
  return element;
};
const html = maker('http://www.w3.org/1999/xhtml');
const svg = maker('http://www.w3.org/2000/svg');

const paragraph = (style, ...text) => html('p', {class: style}, ...text);
const heading = (title, {farside, time}, more = '') => html('header', {}, html('h1', {}, title),
  paragraph('soft', [`Farside ${farside}`, time].filter(Boolean).join(', '), more));
const warning = (...content) => html('div', {class: 'card warn'}, ...content);
const section = (title, note, ...content) =>
  html('section', {}, html('h2', {}, title), paragraph('soft', note), ...content);
const panels = figures => html('div', {class: 'panels'}, figures);
const panel = (caption, plain, chart) =>
  html('figure', {}, html('figcaption', {}, caption, ' ', html('span', {}, plain)), chart);
const legend = entries => html('ul', {class: 'legend'},
  entries.map(({name, style}) => html('li', {class: style}, html('i', {}), name)));
const notes = texts =>
  texts.length ? html('ul', {class: 'notes'}, texts.map(text => html('li', {}, text))) : '';
const facts = pairs => html('dl', {},
  pairs.map(([name, text]) => html('div', {}, html('dt', {}, name), html('dd', {}, text))));

function machineFacts(machine) {
  if (!machine) return [];
  const memory = (machine.memory_bytes / 2 ** 30).toFixed(1);
  return [['processor', machine.processor],
          ['processors and memory', `${machine.processors} processors, ${memory} GiB`],
          ['system', `${machine.system}, ${machine.architecture}`]];
}

/* ---- indexes --------------------------------------------------------------------------------- */

const INDEXES = {
  race: 'RACE', sephash: 'SepHash', shard: 'SHARD', rcuckoo: 'RCuckoo', chime: 'CHIME'};

/* The style of an index, by its name in any spelling; undefined if it is no known index. */
const indexStyle = name => Object.keys(INDEXES).find(style => style === String(name).toLowerCase());
/* As the papers write it. Another name stays as it is. */
const titleOf = name => INDEXES[indexStyle(name)] ?? name;
/* The style of an index, or of the n-th of other things. */
const styleOf = (name, n) => indexStyle(name) ?? Object.keys(INDEXES)[n % 5];

/* ---- results by their path, and tables of them ----------------------------------------------- */

const results = JSON.parse(document.getElementById('results').textContent);

/* The value at a path such as "0/runs/3/per_op/get/rtts". */
const find = path => path.split('/').reduce((value, key) => value?.[key], results);

/* A number of something with a path; NaN if there is none. */
function numberOf(owner, member) {
  const value = owner && find(`${owner.path}/${member}`);
  return typeof value === 'number' ? value : NaN;
}

/* Cells: a name of the row, text among numbers, and a number of the results. Its path stands beside
   it, so that programs can compare it with the JSON. */
const named = (...content) => html('th', {scope: 'row', class: 'text'}, ...content);
const field = text => html('td', {}, text);
const textField = text => html('td', {class: 'text'}, text);
const numbered = (owner, member, value) =>
  ({'data-json': `${owner.path}/${member}`, 'data-value': value});
function number(owner, member) {
  const value = numberOf(owner, member);
  if (Number.isNaN(value)) return field('');
  return html('td', numbered(owner, member, value), grouped(value));
}
/* The same as the name of a row. */
function namedNumber(owner, member) {
  const value = numberOf(owner, member);
  if (Number.isNaN(value)) return named('');
  return html('th', {scope: 'row', class: 'text', ...numbered(owner, member, value)},
              grouped(value));
}

function table(what, open, heads, rows) {
  const head = heads.map((text, i) =>
    html('th', {scope: 'col', class: rows[0]?.[i]?.className ?? ''}, text));
  return html('details', open ? {open: ''} : {}, html('summary', {}, what),
    html('div', {class: 'wide', role: 'region', tabindex: 0, 'aria-label': what},
      html('table', {}, html('thead', {}, html('tr', {}, head)),
        html('tbody', {}, rows.map(cells => html('tr', {}, cells))))));
}
