/* ---- results of farside reproduce: tables ---------------------------------------------------- */

const numeric = value => typeof value === 'number' ? value : NaN;

/* The name of a column. If another has the same head, the head before it comes first. */
function columnName(heads, c) {
  const unique = heads.filter(head => head === heads[c]).length === 1;
  return unique || c === 0 ? heads[c] : `${heads[c - 1]}, ${heads[c]}`;
}

/* A field on the left of a row. An empty one means the same as in the row above. */
function leftField(rows, r, c) {
  const value = rows.slice(1, r + 1).findLast(row => row[c] !== '')?.[c] ?? '';
  return typeof value === 'number' ? grouped(value) : value;
}

/* All fields on the left. If other rows have the same, and the next field is a text, that, too. */
function rowName(rows, r, left) {
  const name = at => rows[at].slice(0, left).map((_, c) => leftField(rows, at, c)).join(' ');
  const next = rows[0][left], others = rows.map((_, at) => at).filter(at => at > 0 && at !== r);
  const alike = left > 0 && others.some(at => name(at) === name(r));
  return alike && rows.slice(1).every(row => typeof row[left] === 'string' && row[left])
    ? `${name(r)}, ${rows[r][left]} ${next}` : name(r);
}

/* ---- the papers' numbers in a table ---------------------------------------------------------- */

/* A table has them in `paper`: {row, column} of our number, the paper's `number`, its `source`, and
   `at`, the column that has only this number, or null. A number beside which there is none of ours
   is left out. */
function papersOf({paper = [], rows}, row, column) {
  if (Number.isNaN(numeric(rows[row]?.[column]))) return [];
  const sources = sourcesOf({paper});
  return paper.filter(p => p.row === row && p.column === column && Number.isFinite(p.number))
              .map(p => ({...p, n: sources.indexOf(p.source), source: `paper: ${p.source}`}));
}

const sourcesOf = ({paper = []}) => [...new Set(paper.map(p => p.source))];
/* The columns that have only the papers' numbers. They have no charts of their own. */
const paperColumns = ({paper = []}) => new Set(paper.map(p => p.at).filter(Number.isInteger));

/* The legend of a chart: ours, and each paper's with its sign. */
const PAPER_SIGNS = ['hatched', 'outlined'];
const paperLegend = (it, sign) => sourcesOf(it).map((source, n) => ({
  name: `paper: ${source}`, style: sign ?? PAPER_SIGNS[Math.min(n, PAPER_SIGNS.length - 1)]}));

/* All of them beside ours, and what ours are of theirs. */
function paperTable(where) {
  const it = find(where), rows = (it.paper ?? []).flatMap(({row, column, number: theirs}, n) => {
    const ours = numeric(it.rows[row]?.[column]);
    if (Number.isNaN(ours)) return [];
    return [[named(rowName(it.rows, row, it.left)), named(columnName(it.rows[0], column)),
             number({path: where}, `rows/${row}/${column}`),
             number({path: where}, `paper/${n}/number`),
             field(theirs === 0 ? '' : short(ours / theirs)), textField(it.paper[n].source)]];
  });
  return !rows.length ? '' : table("The papers' numbers beside ours", false,
    ['row', 'column', 'here', 'paper', 'here / paper', 'source'], rows);
}

/* The first words of a title. */
const beginning = title => title.length < 40 ? title.replace(/:$/, '')
  : title.slice(0, 40).replace(/[ ,:;(]+[^ ]*$/, '...');

const stoodStill = ({stood_still: places = []}, row, column) =>
  places.some(([r, c]) => r === row && c === column);

/* ---- charts of a table ----------------------------------------------------------------------- */

/* The place on an axis that a head or the first field of a row says: "16", "16 clients"; or NaN. */
const onAxis = text =>
  /^-?[\d.]+( clients)?$/.test(text) ? parseFloat(text) : numeric(text);

/* A line with what belongs to it, of fields {x, row, column}. */
function lineOf(it, name, fields) {
  const on = fields.filter(({x}) => !Number.isNaN(x));
  const points = on.map(({x, row, column}) => [x, numeric(it.rows[row][column])]);
  return {name, points, collapse: it.scaling ? collapseOf(points) : null,
          papers: on.flatMap(({x, row, column}) =>
            papersOf(it, row, column).map(({number: y, source}) => [x, y, source])),
          stalled: on.filter(({row, column}) => stoodStill(it, row, column)).map(({x}) => x)};
}

/* Is there something to draw? Over clients, that is a line: a single number may be of another
   number of clients than its column's. */
const drawable = ({points, stalled}, scaling) => {
  const numbers = points.filter(isPoint).length;
  return scaling ? numbers + stalled.length >= 2 : numbers + stalled.length > 0;
};

/* What names a row, but for its last name. */
const groupOf = ({rows, left}, r) =>
  Array.from({length: left - 1}, (_, c) => leftField(rows, r, c)).join(' ');

/* The lines of a table, in groups of one chart each: [[title, series], ...]. The axis is the heads
   of the columns, or the first fields of the rows. If several fields name a row, all but the last
   one say which group it is in. */
function seriesOf(it) {
  const {left, lines: shape, scaling, rows: [heads, ...rows]} = it, others = paperColumns(it);
  const columns = heads.map((_, c) => c).filter(c => c >= left && !others.has(c));
  const series = shape === 'rows'
    ? rows.map((row, r) => ({group: groupOf(it, r + 1), ...lineOf(it, row[left - 1],
        columns.map(column => ({x: onAxis(heads[column]), row: r + 1, column})))}))
    : columns.map(column => ({group: '', ...lineOf(it, columnName(heads, column),
        rows.map((row, r) => ({x: onAxis(row[0]), row: r + 1, column})))}));
  const drawn = series.filter(s => drawable(s, scaling));
  return [...new Set(drawn.map(s => s.group))].map(group => [group,
    drawn.filter(s => s.group === group).map((s, n) => ({...s, style: styleOf(s.name, n)}))]);
}

const LOG_FROM = 20; // an axis whose end is this many times its beginning is logarithmic

/* What the axis counts: "clients:" and heads like "16 clients". */
function axisOf({lines: shape, left, rows: [heads]}) {
  const counted = shape === 'rows' && String(heads[left]).match(/^[\d.]+ (clients)$/);
  return counted ? counted[1] : String(heads[0]).replace(/:$/, '');
}

/* A table with an axis has charts with lines, and bars for columns beside the axis that have
   numbers of papers. */
function sheetLines(it) {
  const groups = seriesOf(it), series = groups.flatMap(([, members]) => members), axis = axisOf(it);
  const xs = series.flatMap(s => s.points.map(([x]) => x));
  const low = Math.min(...xs), high = Math.max(...xs);
  if (!(high > low) || largest(series.flatMap(s => s.points.map(([, y]) => y))) === 0) return [];
  const xScale = through(xs, low > 0 && high / low >= LOG_FROM);
  const draw = shown => {
    const all = shown.flatMap(s => [...s.points, ...s.papers].map(([, y]) => y));
    return lines(it.title, shown, xScale, linear(largest(all)), '', '');
  };
  const names = [...new Map(series.map(s => [s.name, s])).values()];
  const beside = it.lines !== 'rows' ? [] : it.rows[0].map((_, c) => c).filter(c =>
    Number.isNaN(onAxis(it.rows[0][c])) && (it.paper ?? []).some(p => p.column === c));
  return [legend([...names, ...(series.some(s => s.papers.length) ? paperLegend(it, 'dashed') : []),
                  ...(series.some(s => s.collapse) ? [RING] : []),
                  ...(series.some(s => s.stalled.length) ? [CROSS] : [])]),
          panels(groups.map(([group, members]) => panel(group, axis, draw(members)))),
          notes(collapsesOf(it)), ...(beside.length ? sheetBars(it, beside) : [])];
}

/* What falls in a table over clients, for people. */
function collapsesOf(it) {
  if (!it.scaling || !it.lines) return [];
  const unit = axisOf(it).replace(/^.*?(clients|threads).*$/, '$1');
  return seriesOf(it).flatMap(([group, series]) => collapseTexts(series, group, unit));
}

const BARS_MAX = 30; // in a chart

/* Another has bars for each column with two numbers or more, or with those of a paper. */
function sheetBars(it, columns) {
  const {left, rows} = it, others = paperColumns(it), shown = columns ?? rows[0].map((_, c) => c);
  if (rows.length < 2 || rows.length > 1 + BARS_MAX) return [];
  const drawn = shown.flatMap(c => {
    const name = columnName(rows[0], c), values = rows.slice(1).map(row => numeric(row[c]));
    const papers = values.map((_, r) => papersOf(it, r + 1, c));
    const count = values.filter(value => !Number.isNaN(value)).length + papers.flat().length;
    if (c < left || others.has(c) || count < 2) return [];
    return [panel(name, '', bars(name, values.map((value, r) => ({
      name: rowName(rows, r + 1, left), style: styleOf(leftField(rows, r + 1, left - 1), 0), value,
      label: short(value), tip: short(value), papers: papers[r],
      none: stoodStill(it, r + 1, c) ? 'clients stood still' : ''}))))];
  });
  const signs = shown.some(c => rows.some((_, r) => r > 0 && papersOf(it, r, c).length));
  return [signs && drawn.length ? legend([{name: 'here', style: 'solid'}, ...paperLegend(it)]) : '',
          panels(drawn)];
}

const OPEN_ROWS = 12; // tables with more rows are closed at first

function sheet(where) {
  const it = find(where), [heads = [], ...rows] = it.rows;
  const cell = (value, r, c) => {
    if (stoodStill(it, r, c)) return field('stood still');
    const text = typeof value === 'string';
    if (c < it.left) return text ? named(value) : namedNumber({path: where}, `rows/${r}/${c}`);
    return text ? field(value) : number({path: where}, `rows/${r}/${c}`);
  };
  const others = paperColumns(it), cells = (row, r) => row.map((value, c) => {
    const made = cell(value, r + 1, c);
    if (others.has(c)) made.classList.add('theirs');
    return made;
  });
  const drawn = it.lines ? sheetLines(it) : [];
  return [html('h3', {}, it.title.replace(/:$/, '')), ...(drawn.length ? drawn : sheetBars(it)),
          table('Table', it.rows.length <= OPEN_ROWS, heads, rows.map(cells)), paperTable(where)];
}

/* ---- results of farside reproduce: experiments and claims ------------------------------------ */

/* The style of each verdict: of its label, and of counts in the summary. */
const VERDICTS = {'holds': 'good', 'same direction, other size': 'near', 'does not hold': 'bad',
                  'cannot be told': 'open', 'not run': 'none'};
const claimsOf = experiments => experiments.flatMap(e => e.claims ?? []);
const withVerdict = (claims, verdict) => claims.filter(claim => claim.verdict === verdict);

/* The id of an experiment or a claim in the page. Several results may have the same names. */
const ids = new Map(), taken = new Set(['results', 'tip']);
function idOf(it) {
  if (!ids.has(it)) {
    let id = it.name;
    for (let n = 2; taken.has(id); n++) id = `${it.name}-${n}`;
    taken.add(id);
    ids.set(it, id);
  }
  return ids.get(it);
}
const link = (it, attributes, ...content) =>
  html('a', {href: `#${encodeURIComponent(idOf(it))}`, ...attributes}, ...content);

function claimItem(claim) {
  const style = VERDICTS[claim.verdict] ?? 'open';
  return html('li', {id: idOf(claim)},
    html('span', {class: `verdict ${style}`}, claim.verdict),
    html('div', {},
      paragraph('', html('b', {}, claim.name), ` (${claim.source}): ${claim.claim}`),
      paragraph('soft', `Here: ${claim.found}`)));
}

/* The runs of an experiment on the modelled network: of the seeds of each workload the one with the
   median throughput, unless clients stood still. */
function modelRuns(where) {
  const e = find(where), stalls = e.stalls ?? [];
  return (e.cells ?? []).flatMap((cell, c) => {
    const runs = (cell.runs ?? []).map(({workload, index}, n) =>
      ({path: `${where}/cells/${c}/runs/${n}`, cell: cell.name, workload, index})).filter(busiest);
    const seeds = workload => runs.filter(run => run.workload === workload)
                                  .sort((a, b) => rateOf(a) - rateOf(b));
    return [...new Set(runs.map(run => run.workload))]
      .filter(workload => !stalls.some(s => s.cell === cell.name && s.workload === workload))
      .map(workload => seeds(workload)[Math.floor(seeds(workload).length / 2)]);
  });
}

function experimentLimits(where) {
  const runs = modelRuns(where);
  return !runs.length ? '' : table('How near the limits of the modelled network', false,
    ['cell', 'workload', 'index', ...LIMIT_HEADS], runs.map(run => [
      named(run.cell), named(run.workload), named(titleOf(run.index)), ...limitCells(run)]));
}

const stallText = ({cell, workload, seed, seconds, ops}) =>
  `${cell}, ${workload}, seed ${seed}: clients stood still, ${short(seconds)} s for ` +
  `${grouped(ops)} operations`;

/* What is missing in an experiment, or falls. */
const failuresOf = e => (e.cells ?? []).filter(cell => cell.failure)
  .map(cell => `${cell.name} was not measured: ${cell.failure}`);
const stallsOf = e => (e.stalls ?? []).map(stallText);
const allCollapsesOf = e => (e.tables ?? []).flatMap(it =>
  collapsesOf(it).map(text => `${beginning(it.title)}: ${text}`));

function experiment(where) {
  const e = find(where), differs = e.differs ?? [];
  return html('section', {id: idOf(e)}, html('h2', {}, `${e.name}: ${e.summary}`),
    paragraph('soft', `After ${e.after}`), paragraph('soft', `Here: ${e.here}`),
    !differs.length ? '' : html('details', {}, html('summary', {}, 'What differs from the papers'),
      html('ul', {}, differs.map(text => html('li', {}, text)))),
    [...failuresOf(e), ...stallsOf(e)].map(text => paragraph('bad', text)),
    (e.tables ?? []).flatMap((_, n) => sheet(`${where}/tables/${n}`)), experimentLimits(where),
    html('h3', {}, 'What the papers claim'),
    html('ul', {class: 'claims'}, (e.claims ?? []).map(claimItem)));
}

/* ---- results of farside reproduce: the summary ----------------------------------------------- */

/* "SHARD-CLAIM-7" is claim 7 of the paper on SHARD. */
const paperOf = ({name}) => titleOf(String(name).replace(/-CLAIM-.*$/, ''));
/* The papers on indexes come first. */
function rank(paper) {
  const place = Object.values(INDEXES).indexOf(paper);
  return place < 0 ? Infinity : place;
}
const claimNumber = ({name}) => String(name).replace(/^.*-CLAIM-/, '');

/* A count, and links to the claims that it is of. */
const claimLinks = claims => html('td', {class: 'text links'},
  html('b', {}, String(claims.length)), claims.flatMap(claim =>
    [' ', link(claim, {'aria-label': claim.name, title: claim.claim}, claimNumber(claim))]));

function claimSummary(experiments) {
  const claims = claimsOf(experiments), verdicts = Object.keys(VERDICTS);
  const papers = [...new Set(claims.map(paperOf))].sort((a, b) => rank(a) - rank(b) || 0);
  const of = paper => claims.filter(claim => paperOf(claim) === paper);
  const parts = its => verdicts.map(verdict => (
    {style: VERDICTS[verdict], tip: verdict, value: withVerdict(its, verdict).length}));
  return !claims.length ? [] : [
    legend(verdicts.map(verdict => ({name: verdict, style: `verdict-${VERDICTS[verdict]}`}))),
    panels([panel('claims', 'by paper',
      stacks('claims by paper and verdict', papers.map(paper => (
        {name: paper, all: of(paper).length, parts: parts(of(paper))}))))]),
    table('Claims by paper: how many, and which', true, ['paper', ...verdicts],
      papers.map(paper => [named(paper),
        ...verdicts.map(verdict => claimLinks(withVerdict(of(paper), verdict)))]))];
}

const NEAR = 1.25;

/* Of each experiment, how many claims, and how many of the papers' numbers are beside one of ours,
   or near it. */
function experimentTable(experiments) {
  const verdicts = Object.keys(VERDICTS);
  const ratiosOf = e => (e.tables ?? []).flatMap(it => (it.paper ?? []).map(
    ({row, column, number}) => numeric(it.rows[row]?.[column]) / number)).filter(Number.isFinite);
  const near = ratios => ratios.filter(ratio => ratio < NEAR && ratio > 1 / NEAR);
  return table('Experiments: claims, and numbers of papers', true,
    ['experiment', ...verdicts, "papers' numbers", 'ours within a quarter'],
    experiments.map(e => [named(link(e, {}, e.name)),
      ...verdicts.map(verdict => withVerdict(claimsOf([e]), verdict).length),
      ratiosOf(e).length, near(ratiosOf(e)).length]
      .map(cell => typeof cell === 'number' ? field(String(cell)) : cell)));
}

/* Collapses, runs that stood still and cells that were not measured, with links to experiments. */
function standsOut(experiments) {
  const list = [['Throughputs that collapse', allCollapsesOf],
                ['Runs in which clients stood still', stallsOf],
                ['Not measured, because operations failed', failuresOf]];
  return list.flatMap(([title, of]) => {
    const found = experiments.flatMap(e => of(e).map(text => [link(e, {}, e.name), `: ${text}`]));
    return found.length ? [html('h3', {}, `${title}: ${found.length}`), notes(found)] : [];
  });
}

/* What limits the workloads of each experiment on the modelled network. */
function limitsSummary(where, experiments) {
  const rows = experiments.map((e, n) => [e, modelRuns(`${where}/experiments/${n}`).map(limitOf)])
    .filter(([, limits]) => limits.length);
  if (!rows.length) return '';
  const kinds = [...LIMITS.map(([name]) => name), 'none: clients wait'];
  return section('How near the limits of the modelled network', LIMIT_NOTE,
    paragraph('soft', 'Each experiment has a table with all of its workloads.'),
    table('Workloads by what was busy for 90 % of the time or more', true,
      ['experiment', 'workloads', ...kinds], rows.map(([e, limits]) => [
        named(link(e, {}, e.name)), field(String(limits.length)),
        ...kinds.map((_, kind) => field(String(limits.filter(limit => limit === kind).length)))])));
}

function reproduction(where) {
  const result = find(where), all = result.experiments;
  return [heading("The papers' experiments, repeated", result),
    section('Summary', 'What the papers claim, and how much of that holds here.', claimSummary(all),
      experimentTable(all), standsOut(all)),
    html('div', {class: 'card'}, facts([
      ['size', result.quick ? 'fewer keys, operations and points (--quick)' : 'full'],
      ['complete', result.complete ? 'yes' : 'no'], ...machineFacts(result.machine)])),
    limitsSummary(where, all),
    ...all.map((_, n) => experiment(`${where}/experiments/${n}`))];
}
