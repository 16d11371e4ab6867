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
