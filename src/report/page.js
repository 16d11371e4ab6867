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
function number(owner, member) {
  const value = numberOf(owner, member);
  if (Number.isNaN(value)) return field('');
  return html('td', {'data-json': `${owner.path}/${member}`, 'data-value': value}, grouped(value));
}

function table(what, open, heads, rows) {
  const head = heads.map((text, i) =>
    html('th', {scope: 'col', class: rows[0]?.[i]?.className ?? ''}, text));
  return html('details', open ? {open: ''} : {}, html('summary', {}, what),
    html('div', {class: 'wide', role: 'region', tabindex: 0, 'aria-label': what},
      html('table', {}, html('thead', {}, html('tr', {}, head)),
        html('tbody', {}, rows.map(cells => html('tr', {}, cells))))));
}

/* ---- charts: functions of plain numbers ------------------------------------------------------ */

/* A chart is WIDTH units wide and scales with the page. Each mark has its numbers in data-tip. Text
   is placed so that no two labels can overlap. */
const WIDTH = 340, BAR = 13;

const chart = (what, height, marks) => svg('svg',
  {viewBox: `0 0 ${WIDTH} ${height}`, role: 'img', 'aria-label': what}, marks);
const text = (style, x, y, content) => svg('text', {class: style, x, y}, content);
const path = (style, d) => svg('path', {class: style, d});
const rect = (style, x, y, width, height) =>
  svg('rect', {class: style, x, y, width, height, rx: 1.5});

/* Where the rows of a chart are. Names that are too long to stand beside their bars stand above. */
function layout(rows, labelWidth) {
  const tall = rows.some(row => row.name.length > 9);
  const left = tall ? 0 : 60;
  const room = WIDTH - left - labelWidth;
  return {tall, left, room, height: tall ? 40 : 22, top: tall ? 20 : 4.5};
}

/* A row: its name, and if it has something to show, marks and a label that begins at `labelX`. */
function drawRow(at, i, {name, style, label, tip}, labelX, marks) {
  const y = i * at.height, base = y + at.top + BAR - 3;
  const cut = name.length > 50 ? name.slice(0, 50) + '...' : name;
  const title = at.tall ? text('name', 0, y + 15, cut) : text('name end', at.left - 7, base, cut);
  if (!marks.length) return [title];
  const area = rect('hit', 0, y, WIDTH, at.height);
  return [title, svg('g', {class: style, 'data-tip': `${name}: ${tip}`}, area, marks),
          text('value', labelX, base, label)];
}

/* Bars of `value` and, behind it in a lighter shade, `more`. One without a number is left out, but
   keeps its name. */
function bars(what, rows) {
  const at = layout(rows, rows.some(row => row.more > 0) ? 108 : 64);
  const height = rows.length * at.height;
  const max = Math.max(...rows.map(row => row.value + (row.more || 0) || 0)) || 1;
  return chart(what, height, [path('axis', `M${at.left} 0V${height}`), rows.map((row, i) => {
    const y = i * at.height + at.top, first = Math.max(at.room * row.value / max, 1);
    const second = row.more > 0 ? Math.max(at.room * row.more / max, 1) : 0;
    const marks = Number.isFinite(row.value) ? [rect('fill', at.left, y, first, BAR)] : [];
    if (second && marks.length) marks.push(rect('pale', at.left + first, y, second, BAR));
    return drawRow(at, i, row, at.left + first + second + 6, marks);
  })].flat(2));
}

/* Ranges from `low` to `high`, and a dot at `beyond`: median, 99th percentile and 99.9th. */
function ranges(what, rows, scale) {
  const at = layout(rows, 108), bottom = rows.length * at.height;
  const x = value => at.left + at.room * place(scale, value);
  return chart(what, bottom + 22, [xTicks(scale, x, bottom), rows.map((row, i) => {
    const [low, high, beyond] = [row.low, row.high, row.beyond].map(x);
    const y = i * at.height + at.top, middle = y + BAR / 2;
    const marks = Number.isFinite(row.low) ? [
      path('thin', `M${high} ${middle}H${beyond}`),
      rect('pale', low, y + 2, Math.max(high - low, 1), BAR - 4),
      rect('fill', low - 1.5, y, 3, BAR), rect('fill', high - 1.5, y, 3, BAR),
      svg('circle', {class: 'fill', cx: beyond, cy: middle, r: 2.5})] : [];
    return drawRow(at, i, row, WIDTH - 96, marks);
  })].flat(2));
}

const xTicks = (scale, x, bottom) => scale.ticks.flatMap(t => [
  path('grid', `M${x(t)} 0V${bottom}`), text('tick middle', x(t), bottom + 17, tick(t))]);

/* Shapes of marks tell series apart where colours do not. */
const SHAPES = ['m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0', 'm-2.7 -2.7h5.4v5.4h-5.4z',
                'm0 -3.6l3.4 6h-6.8z', 'm0 -3.8l3.8 3.8l-3.8 3.8l-3.8 -3.8z',
                'm-3.2 -2.2h6.4l-3.2 5.8z'];
const MARKS_MAX = 40;    // points of a series that get a visible mark
const TARGETS_MAX = 120; // points that can be pointed at

/* Lines of series {name, style, points: [[x, y], ...]}; a y that is not a number is a gap. */
function lines(what, series, xScale, yScale, xUnit, yUnit) {
  const left = 46, right = WIDTH - 18, top = 10, bottom = 180;
  const x = value => left + (right - left) * place(xScale, value);
  const y = value => bottom - (bottom - top) * place(yScale, value);
  const isPoint = point => Number.isFinite(point?.[1]);
  const drawLine = ({style, points}) => {
    const steps = points.map((p, i) =>
      isPoint(p) ? `${isPoint(points[i - 1]) ? 'L' : 'M'}${x(p[0])} ${y(p[1])}` : '');
    return svg('g', {class: style}, path('line', steps.join('')));
  };
  const drawPoints = ({name, style, points}, n) => {
    const stride = 1 + Math.floor((points.length - 1) / TARGETS_MAX);
    const shown = points.filter((p, i) => isPoint(p) && i % stride === 0);
    return svg('g', {class: style}, shown.map(p => svg('g',
      {'data-tip': `${name}, ${tick(p[0])}${xUnit}: ${short(p[1])}${yUnit}`},
      svg('circle', {class: 'hit', cx: x(p[0]), cy: y(p[1]), r: 7}),
      points.length > MARKS_MAX ? '' : path('mark', `M${x(p[0])} ${y(p[1])}${SHAPES[n % 5]}`))));
  };
  const yTicks = yScale.ticks.flatMap(t => [path('grid', `M${left} ${y(t)}H${right}`),
                                            text('tick end', left - 6, y(t) + 3.5, tick(t))]);
  return chart(what, 204, [...yTicks, ...xTicks(xScale, x, bottom), ...series.map(drawLine),
                           ...series.map(drawPoints)]);
}

/* ---- the runs of a benchmark ----------------------------------------------------------------- */

/* Runs in the order of the results. Each workload of the list has a label: one that is listed twice
   has two, "a" and "a (no. 2)", and all repeats of a workload have the same one. */
class Runs {
  constructor(where) {
    this.all = [];
    (find(`${where}/runs`) ?? []).forEach((json, n) => this.add(`${where}/runs/${n}`, json));
    const distinct = member => [...new Set(this.all.map(run => run[member]))];
    this.labels = distinct('label');
    this.indexes = distinct('index');
    this.clients = distinct('clients').sort((a, b) => a - b);
    this.repeated = this.all.some(run => run.repeat > 1);
  }

  add(path, json) {
    const {index = '', workload = '', repeat = 1} = json;
    const clients = (json.machines || 1) * json.processes * json.threads || 1;
    const again = this.all.filter(run => run.workload === workload && run.index === index &&
                                         run.clients === clients && run.repeat === repeat).length;
    const label = again ? `${workload} (no. ${again + 1})` : workload;
    this.all.push({path, json, index, workload, repeat, clients, label});
  }

  get mostClients() { return this.clients.at(-1); }

  /* The repeats of a run, from the slowest to the fastest. */
  repeats(label, index, clients = this.mostClients) {
    return this.all.filter(r => r.label === label && r.index === index && r.clients === clients)
                   .sort((a, b) => rateOf(a) - rateOf(b));
  }

  /* The run with the median throughput: of an even number, the slower one of the two. */
  run(label, index, clients) {
    const repeats = this.repeats(label, index, clients);
    return repeats[Math.floor((repeats.length - 1) / 2)];
  }

  /* The kinds of operations of a workload, whichever index ran it. */
  ops(label) {
    const runs = this.all.filter(run => run.label === label);
    return [...new Set(runs.flatMap(run => Object.keys(run.json.per_op ?? {})))];
  }

  /* "50 % get, 50 % update" */
  mix(label) {
    const ops = Object.entries(this.all.find(run => run.label === label).json.per_op ?? {});
    const all = ops.reduce((sum, [, cost]) => sum + cost.count, 0);
    return ops.map(([op, cost]) => `${Math.round(100 * cost.count / all)} % ${op}`).join(', ');
  }

  /* A row or a series for each index: its name and style, and what `describe` says of its run. */
  byIndex(label, describe) {
    return this.indexes.map((index, i) => ({name: titleOf(index), style: styleOf(index, i),
                                            ...describe(this.run(label, index), index)}));
  }

  /* A panel for each workload, and for each workload and operation, if `draw` returns a chart. */
  workloadPanels(draw) {
    return panels(this.labels.flatMap(label => {
      const drawn = draw(label);
      return drawn ? [panel(label, this.mix(label), drawn)] : [];
    }));
  }
  opPanels(draw) {
    return panels(this.labels.flatMap(label => this.ops(label).flatMap(op => {
      const drawn = draw(label, op);
      return drawn ? [panel(label, op, drawn)] : [];
    })));
  }

  /* The table under such panels. `columns`: pairs of a head and a member of the costs. */
  opTable(what, columns) {
    const rows = this.labels.flatMap(label => this.ops(label).flatMap(op => this.indexes
      .map(index => this.run(label, index)).filter(run => costOf(run, op, 'count') > 0)
      .map(run => [named(label), named(op), named(titleOf(run.index)),
                   ...columns.map(([, member]) => number(run, `per_op/${op}/${member}`))])));
    const heads = ['workload', 'operation', 'index', ...columns.map(([head]) => head)];
    return table(what, false, heads, rows);
  }
}

const rateOf = run => numberOf(run, 'ops_per_s');
const costOf = (run, op, member) => numberOf(run, `per_op/${op}/${member}`);
/* At least 0. What is not a number is left out. */
const largest = numbers => numbers.reduce((most, value) => value > most ? value : most, 0);
const plus = (a, b) => b > 0 ? `${short(a)} + ${short(b)}` : short(a);

/* ---- results of farside bench ---------------------------------------------------------------- */

function throughput(runs) {
  const note = `Operations per second of ${plural(runs.mostClients, 'client')}; more is better. ` +
    'Each workload has its own scale.' + (runs.repeated
      ? ' Of the repeats of a workload, all charts show the one with the median throughput.' : '');
  const rates = pick => runs.labels.map(label => number(pick(label), 'ops_per_s'));
  const spread = index => [['slowest', 0], ['fastest', -1]].map(([which, n]) => [
    named(titleOf(index)), named(which), ...rates(label => runs.repeats(label, index).at(n))]);
  const draw = label => bars('operations per second by index', runs.byIndex(label, run => ({
    value: rateOf(run), label: short(rateOf(run)),
    tip: `${grouped(rateOf(run))} operations per second`})));
  return section('Throughput', note, runs.workloadPanels(draw),
    table('Operations per second', true, ['index', ...runs.labels], runs.indexes.map(index =>
      [named(titleOf(index)), ...rates(label => runs.run(label, index))])),
    !runs.repeated ? '' : table('Operations per second of the slowest and the fastest repeat', true,
      ['index', 'repeat', ...runs.labels], runs.indexes.flatMap(spread)));
}

function throughputOverClients(runs) {
  if (runs.clients.length < 2) return '';
  const draw = label => {
    const series = runs.byIndex(label, (_, index) => ({points: runs.clients.map(clients =>
      [clients, rateOf(runs.run(label, index, clients))])}));
    const high = largest(series.flatMap(s => s.points.map(([, rate]) => rate)));
    return lines('operations per second over clients', series, through(runs.clients, true),
                 linear(high), ' clients', ' operations per second');
  };
  const rows = runs.labels.flatMap(label => runs.indexes.map(index => [
    named(label), named(titleOf(index)),
    ...runs.clients.map(clients => number(runs.run(label, index, clients), 'ops_per_s'))]));
  return section('Throughput over clients',
    'Operations per second over the number of clients. All other charts are of the runs with the ' +
    'most clients.', runs.workloadPanels(draw),
    table('Operations per second by clients', false,
      ['workload', 'index', ...runs.clients.map(tick)], rows));
}

function latency(runs) {
  const draw = (label, op) => {
    const rows = runs.byIndex(label, run => {
      const [low, high, beyond] = ['p50_us', 'p99_us', 'p999_us'].map(m => costOf(run, op, m));
      return {low, high, beyond, label: `${short(low)} – ${short(high)}`,
              tip: `p50 ${short(low)} µs, p99 ${short(high)} µs, p99.9 ${short(beyond)} µs`};
    });
    const all = rows.flatMap(row => [row.low, row.high, row.beyond]).filter(us => us > 0);
    return largest(rows.map(row => row.low)) > 0 &&
      ranges('latency by index, in microseconds', rows,
             logarithmic(Math.min(...all), Math.max(...all)));
  };
  return section('Latency',
    'Microseconds, on a logarithmic scale; less is better. A bar reaches from the median to the ' +
    '99th percentile, the dot is the 99.9th.', runs.opPanels(draw),
    runs.opTable('Percentiles', [['p50 µs', 'p50_us'], ['p99 µs', 'p99_us'],
                                 ['p99.9 µs', 'p999_us'], ['operations', 'count']]));
}

const CDF_END = 0.999; // a few operations beyond would take most of the axis

/* The columns of the table, as places in the JSON's list of percentiles. */
const PERCENTILES = [['min', 0], ['p1', 1], ['p10', 3], ['p50', 7], ['p90', 11], ['p95', 12],
                     ['p98', 13], ['p99', 14], ['p99.5', 15], ['p99.9', 16], ['p99.99', 17],
                     ['max', 18]];

function distribution(runs) {
  const draw = (label, op) => {
    const series = runs.byIndex(label, run => ({
      points: (run?.json.per_op?.[op]?.latency_us ?? [])
        .filter(([part, us]) => us > 0 && part <= CDF_END).map(([part, us]) => [us, 100 * part])}));
    const times = series.flatMap(s => s.points.map(([us]) => us));
    return times.length > 0 &&
      lines('percent of the operations over microseconds', series,
            logarithmic(Math.min(...times), Math.max(...times)), linear(100),
            ' µs', ' % of the operations');
  };
  const charts = runs.opPanels(draw);
  if (!charts.hasChildNodes()) return '';
  return section('Distribution of latencies',
    'Percent of the operations that were done within so many microseconds, on a logarithmic ' +
    'scale. The lines end at 99.9 %.', charts,
    runs.opTable('Percentiles in microseconds',
                 PERCENTILES.map(([head, n]) => [head, `latency_us/${n}/1`])));
}

const WINDOWS_MAX = 60; // of a time line in the table

function timelines(runs) {
  const windows = (label, index) => runs.run(label, index)?.json.timeline ?? [];
  const longest = label => largest(runs.indexes.map(index => windows(label, index).length));
  const labels = runs.labels.filter(label => longest(label) >= 3);
  if (!labels.length) return '';
  const draw = label => {
    if (!labels.includes(label)) return null;
    const series = runs.byIndex(label, (_, index) => ({
      points: windows(label, index).map(w => [w.seconds, w.ops_per_s])}));
    const points = series.flatMap(s => s.points);
    return lines('operations per second over time', series,
                 linear(largest(points.map(([seconds]) => seconds))),
                 linear(largest(points.map(([, rate]) => rate))), ' s', ' operations per second');
  };
  const rows = labels.flatMap(label => Array.from({length: longest(label)}, (_, n) => n)
    .filter(n => n % (1 + Math.floor(longest(label) / WINDOWS_MAX)) === 0)
    .map(n => [named(label), named(tick(n + 1)), ...runs.indexes.flatMap(index =>
      ['seconds', 'ops_per_s'].map(m => number(runs.run(label, index), `timeline/${n}/${m}`)))]));
  return section('Time lines',
    'Operations per second over seconds. Workloads that took less than three windows of time ' +
    'have none.', runs.workloadPanels(draw),
    table('Seconds and operations per second, by window', false,
      ['workload', 'window', ...runs.indexes.flatMap(index => ['s', titleOf(index)])], rows));
}

function roundTrips(runs) {
  const draw = (label, op) => {
    const rows = runs.byIndex(label, run => {
      const [rtts, p99, verbs] = ['rtts', 'rtts_p99', 'verbs'].map(m => costOf(run, op, m));
      return {value: rtts, label: short(rtts),
              tip: `${short(rtts)} round trips (p99: ${tick(p99)}), ${short(verbs)} verbs`};
    });
    return largest(rows.map(row => row.value)) > 0 &&
      bars('round trips of an operation by index', rows);
  };
  return section('Round trips of an operation',
    'Round trips to far memory, on average; fewer is better. They do not depend on the machine.',
    runs.opPanels(draw),
    runs.opTable('Round trips and verbs', [['round trips', 'rtts'], ['p99', 'rtts_p99'],
                                           ['p99.9', 'rtts_p999'], ['verbs', 'verbs']]));
}

function bytes(runs) {
  const draw = (label, op) => {
    const rows = runs.byIndex(label, run => {
      const [read, written] = ['bytes_read', 'bytes_written'].map(m => costOf(run, op, m));
      return {value: read, more: written, label: plus(read, written),
              tip: `${short(read)} bytes read, ${short(written)} bytes written`};
    });
    return largest(rows.map(row => row.value)) > 0 && bars('bytes of an operation by index', rows);
  };
  return section('Bytes of an operation',
    'Bytes read, and in the lighter shade bytes written, on average; fewer is better.',
    runs.opPanels(draw),
    runs.opTable('Bytes', [['bytes read', 'bytes_read'], ['bytes written', 'bytes_written']]));
}

const SPACE = [['keys', 'keys'], ['load factor', 'load_factor'], ['index bytes', 'index_bytes'],
               ['block bytes', 'block_bytes'], ['cache bytes', 'client_cache_bytes'],
               ['splits', 'splits']];

function memory(runs) {
  const last = index => runs.labels.map(label => runs.run(label, index))
    .findLast(run => numberOf(run, 'space/keys') > 0);
  if (!runs.indexes.some(last)) return '';
  const perKey = (index, member) =>
    numberOf(last(index), `space/${member}`) / numberOf(last(index), 'space/keys');
  const bytesPerKey = runs.byIndex('', (_, index) => {
    const own = perKey(index, 'index_bytes'), blocks = perKey(index, 'block_bytes');
    return {value: own, more: blocks, label: plus(own, blocks),
            tip: `${short(own)} bytes of index, ${short(blocks)} bytes of blocks per key`};
  });
  const rows = runs.indexes.map(index => [
    named(titleOf(index)), ...SPACE.map(([, member]) => number(last(index), `space/${member}`))]);
  return section('Memory', 'What the table takes in far memory after the last workload.',
    panels([panel('bytes per key', 'index, and blocks in the lighter shade',
                  bars('bytes per key by index', bytesPerKey))]),
    table('Memory of the table; splits are those of the last workload', true,
      ['index', ...SPACE.map(([head]) => head)], rows));
}

/* What is wrong with a run; '' if nothing is. */
function troubleOf({json}) {
  const done = `after ${json.ops} of ${json.ops_planned} operations`;
  const errors = Object.values(json.per_op ?? {}).reduce((n, cost) => n + (cost.errors || 0), 0);
  if (json.stopped_by) return `stopped ${done} by ${json.stopped_by}`;
  if (json.interrupted) return `interrupted ${done}`;
  if (!json.first_error && !errors) return '';
  return `${errors} of ${json.ops} operations failed` +
         (json.first_error ? `, the first with ${json.first_error}` : '');
}

function troubles(runs) {
  const list = runs.all.filter(troubleOf).map(run => paragraph('',
    `${titleOf(run.index)}, ${run.label}, ${plural(run.clients, 'client')}: ${troubleOf(run)}`));
  return list.length ? warning(html('h2', {}, 'Runs that failed or were interrupted'), list) : '';
}

function benchFacts(result, runs) {
  const {keys, depth, ops_planned: planned} = runs.all.at(-1).json;
  const range = (from, to) => from === to ? `${from} bytes` : `${from} to ${to} bytes`;
  return html('div', {class: 'card'}, facts([
    ['keys', `${grouped(keys)} of ${range(result.key_size, result.key_size_max)}`],
    ['values', range(result.value_size, result.value_size_max)],
    ['clients', `${runs.clients.join(', ')}, each with ${depth} in flight`],
    ['operations of a workload', grouped(planned)],
    ['skew of keys, seed', `theta ${result.theta}, seed ${result.seed}`],
    ...machineFacts(result.machine)]));
}

function bench(where) {
  const result = find(where), runs = new Runs(where);
  const about = heading(`Benchmark on ${result.pool}`, result,
    result.pool?.startsWith('model:') ? '; a modelled network: all times are virtual' : '');
  if (!runs.all.length) return [about, warning(paragraph('', 'Nothing was measured.'))];
  // Runs of other stores have no costs of operations.
  const costs = runs.all.some(run => Object.keys(run.json.per_op ?? {}).length > 0);
  const parts = [throughput, throughputOverClients, ...(costs ? [latency, distribution] : []), timelines,
                 ...(costs ? [roundTrips, bytes] : []), memory];
  return [about, benchFacts(result, runs), troubles(runs), legend(runs.byIndex('', () => ({}))),
          ...parts.map(part => part(runs))];
}

/* ---- results of farside reproduce: tables ---------------------------------------------------- */

const numeric = value => typeof value === 'number' ? value : NaN;

/* The name of a column. If another has the same head, the head before it comes first. */
function columnName(heads, c) {
  const unique = heads.filter(head => head === heads[c]).length === 1;
  return unique || c === 0 ? heads[c] : `${heads[c - 1]}, ${heads[c]}`;
}

/* The fields on the left of a row. An empty one means the same as in the row above. */
function rowName(rows, r, left) {
  return rows[r].slice(0, left).map((_, c) => {
    const value = rows.slice(1, r + 1).findLast(row => row[c] !== '')?.[c] ?? '';
    return typeof value === 'number' ? grouped(value) : value;
  }).join(' ');
}

/* The lines of a table. Its axis is the heads of the columns, or the first fields of the rows. */
function seriesOf({left, lines: shape, rows: [heads, ...rows]}) {
  const point = (x, y) => [parseFloat(x), numeric(y)];
  const series = shape === 'rows'
    ? rows.map(row => ({name: row[0],
                        points: row.map((value, c) => point(heads[c], value)).slice(1)}))
    : heads.map((_, c) => ({name: columnName(heads, c),
                            points: rows.map(row => point(row[0], row[c]))})).slice(left);
  return series
    .map(s => ({...s, points: s.points.filter(([x]) => !Number.isNaN(x))}))
    .filter(s => s.points.some(([, y]) => !Number.isNaN(y)))
    .map((s, n) => ({...s, style: styleOf(s.name, n)}));
}

const LOG_FROM = 20; // an axis whose end is this many times its beginning is logarithmic

/* A table with an axis has one chart, with lines. */
function sheetLines(it) {
  const series = seriesOf(it), points = series.flatMap(s => s.points), xs = points.map(([x]) => x);
  const low = Math.min(...xs), high = Math.max(...xs), most = largest(points.map(([, y]) => y));
  if (!(high > low) || most === 0) return [];
  const xScale = through(xs, low > 0 && high / low >= LOG_FROM);
  const drawn = lines(it.title, series, xScale, linear(most), '', '');
  return [legend(series), panels([panel('', it.rows[0][0], drawn)])];
}

const BARS_MAX = 30; // in a chart

/* Another has bars for each column with two numbers or more. */
function sheetBars({left, rows}) {
  if (rows.length < 3 || rows.length > 1 + BARS_MAX) return [];
  return [panels(rows[0].flatMap((_, c) => {
    const name = columnName(rows[0], c);
    const values = rows.slice(1).map(row => numeric(row[c]));
    if (c < left || values.filter(value => !Number.isNaN(value)).length < 2) return [];
    return [panel(name, '', bars(name, values.map((value, r) => ({
      name: rowName(rows, r + 1, left), style: styleOf(rows[r + 1][left - 1], 0), value,
      label: short(value), tip: short(value)}))))];
  }))];
}

const OPEN_ROWS = 12; // tables with more rows are closed at first

function sheet(where) {
  const it = find(where), [heads = [], ...rows] = it.rows;
  const cell = (value, r, c) => typeof value !== 'string' ? number({path: where}, `rows/${r}/${c}`)
    : c < it.left ? named(value) : field(value);
  return [html('h3', {}, it.title.replace(/:$/, '')),
          ...(it.lines ? sheetLines(it) : sheetBars(it)),
          table('Table', it.rows.length <= OPEN_ROWS, heads,
                rows.map((row, r) => row.map((value, c) => cell(value, r + 1, c))))];
}

/* ---- results of farside reproduce: experiments and claims ------------------------------------ */

const VERDICTS = {'holds': 'good', 'same direction, other size': 'open', 'does not hold': 'bad',
                  'cannot be told': 'open', 'not run': 'open'};
const countClaims = (experiments, verdict) =>
  experiments.flatMap(e => e.claims ?? []).filter(claim => claim.verdict === verdict).length;

function claimItem(claim) {
  const style = VERDICTS[claim.verdict] ?? 'open';
  return html('li', {}, html('span', {class: `verdict ${style}`}, claim.verdict), html('div', {},
    paragraph('', html('b', {}, claim.name), ` (${claim.source}): ${claim.claim}`),
    paragraph('soft', `Here: ${claim.found}`)));
}

function experiment(where) {
  const e = find(where), differs = e.differs ?? [];
  const failures = (e.cells ?? []).filter(cell => cell.failure).map(cell =>
    paragraph('bad', `${cell.name} was not measured: ${cell.failure}`));
  return html('section', {id: e.name}, html('h2', {}, `${e.name}: ${e.summary}`),
    paragraph('soft', `After ${e.after}`), paragraph('soft', `Here: ${e.here}`),
    !differs.length ? '' : html('details', {}, html('summary', {}, 'What differs from the papers'),
      html('ul', {}, differs.map(text => html('li', {}, text)))),
    failures, (e.tables ?? []).flatMap((_, n) => sheet(`${where}/tables/${n}`)),
    html('h3', {}, 'What the papers claim'),
    html('ul', {class: 'claims'}, (e.claims ?? []).map(claimItem)));
}

function reproduction(where) {
  const result = find(where), all = result.experiments, verdicts = Object.keys(VERDICTS);
  return [heading("The papers' experiments, repeated", result),
    html('div', {class: 'card'}, facts([
      ['claims', verdicts.map(verdict => `${verdict}: ${countClaims(all, verdict)}`).join('; ')],
      ['size', result.quick ? 'fewer keys, operations and points (--quick)' : 'full'],
      ['complete', result.complete ? 'yes' : 'no'], ...machineFacts(result.machine)]),
      table("Experiments, and the papers' claims about them", true,
        ['experiment', ...verdicts], all.map(e => [
          named(html('a', {href: `#${e.name}`}, e.name)),
          ...verdicts.map(verdict => field(tick(countClaims([e], verdict))))]))),
    ...all.map((_, n) => experiment(`${where}/experiments/${n}`))];
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Shows the numbers of a mark under the pointer or the finger. */
function showTip(event) {
  const tip = document.getElementById('tip'), mark = event.target.closest?.('[data-tip]');
  tip.hidden = !mark;
  if (!mark) return;
  tip.textContent = mark.dataset.tip;
  const {width, height} = tip.getBoundingClientRect();
  const below = event.clientY + 18 + height <= innerHeight;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 6))}px`;
  tip.style.top = `${Math.max(4, below ? event.clientY + 18 : event.clientY - height - 10)}px`;
}

/* The elements of one of the results, or what is wrong with it. */
function show(result, n) {
  try {
    return (result.experiments ? reproduction : bench)(String(n));
  } catch (error) {
    return warning(paragraph('', `Result ${n + 1} cannot be drawn: ${error}`));
  }
}

document.querySelector('main').append(...results.flatMap(show));
document.addEventListener('pointermove', showTip);
document.addEventListener('pointerdown', showTip);
