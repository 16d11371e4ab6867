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

const PAPER_ROW = 14, PAPER_BAR = 8;

/* Where the rows of a chart are: row i begins at ys[i], and the last one ends at `bottom`. Names
   that are too long to stand beside their bars stand above. Below a bar is room for the papers'. */
function layout(rows, labelWidth) {
  const tall = rows.some(row => row.name.length > 9);
  const left = tall ? 0 : 60, height = tall ? 40 : 22;
  const heights = rows.map(({papers = []}) => height + papers.length * PAPER_ROW);
  const ys = heights.map((_, i) => heights.slice(0, i).reduce((sum, h) => sum + h, 0));
  return {tall, left, ys, height, top: tall ? 20 : 4.5, room: WIDTH - left - labelWidth,
          bottom: ys.at(-1) + heights.at(-1)};
}

/* A row: its name, and if it has something to show, marks and a label that begins at `labelX`. */
function drawRow(at, i, {name, style, label, tip}, labelX, marks) {
  const y = at.ys[i], base = y + at.top + BAR - 3;
  const cut = name.length > 50 ? name.slice(0, 50) + '...' : name;
  const title = at.tall ? text('name', 0, y + 15, cut) : text('name end', at.left - 7, base, cut);
  if (!marks.length) return [title];
  const area = rect('hit', 0, y, WIDTH, at.height);
  return [title, svg('g', {class: style, 'data-tip': `${name}: ${tip}`}, area, marks),
          text('value', labelX, base, label)];
}

/* Lines that fill a rectangle, at 45 degrees. */
function hatch(x, y, width, height) {
  let steps = '';
  for (let at = 4 - height; at < width; at += 4) {
    const from = Math.max(at, 0), to = Math.min(at + height, width);
    steps += `M${x + from} ${y + height - (from - at)}L${x + to} ${y + height - (to - at)}`;
  }
  return path('hatch', steps);
}

/* The bars of a row's papers, one below the other: those of the first source are hatched. */
function drawPapers(at, i, {name, style, papers = []}, scale) {
  return papers.flatMap(({number, source, n}, k) => {
    const y = at.ys[i] + at.height + k * PAPER_ROW - 2, width = Math.max(scale * number, 1);
    const marks = [rect('hit', 0, y, WIDTH, PAPER_ROW),
                   rect('outline', at.left, y, width, PAPER_BAR),
                   ...(n === 0 ? [hatch(at.left, y, width, PAPER_BAR)] : [])];
    const tip = `${name}, ${source}: ${short(number)}`;
    return [svg('g', {class: `${style} paper`, 'data-tip': tip}, marks),
            text('value tick', at.left + width + 6, y + PAPER_BAR, short(number))];
  });
}

/* Bars of `value` and, behind it in a lighter shade, `more`; below them those of `papers`. One
   without a number is left out, but keeps its name and what `none` says of it. The scale ends at
   the largest number, or at `full` if that is more. */
function bars(what, rows, full = 0) {
  const at = layout(rows, rows.some(row => row.more > 0) ? 108 : 64);
  const sizes = rows.flatMap(({value, more = 0, papers = []}) =>
    [value + (more || 0), ...papers.map(paper => paper.number)]);
  const max = largest([full, ...sizes]) || 1;
  return chart(what, at.bottom, [path('axis', `M${at.left} 0V${at.bottom}`), rows.map((row, i) => {
    const y = at.ys[i] + at.top, first = Math.max(at.room * row.value / max, 1);
    const second = row.more > 0 ? Math.max(at.room * row.more / max, 1) : 0;
    const marks = Number.isFinite(row.value) ? [rect('fill', at.left, y, first, BAR)] : [];
    if (second && marks.length) marks.push(rect('pale', at.left + first, y, second, BAR));
    const none = marks.length ? '' : row.none;
    const missing = none ? text('tick', at.left + 6, y + BAR - 3, none) : [];
    return [...drawRow(at, i, row, at.left + first + second + 6, marks),
            missing, drawPapers(at, i, row, at.room / max)];
  })].flat(3));
}

/* Ranges from `low` to `high`, and a dot at `beyond`: median, 99th percentile and 99.9th. */
function ranges(what, rows, scale) {
  const at = layout(rows, 108), bottom = at.bottom;
  const x = value => at.left + at.room * place(scale, value);
  return chart(what, bottom + 22, [xTicks(scale, x, bottom), rows.map((row, i) => {
    const [low, high, beyond] = [row.low, row.high, row.beyond].map(x);
    const y = at.ys[i] + at.top, middle = y + BAR / 2;
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

const isPoint = point => Number.isFinite(point?.[1]);

const COLLAPSED = 0.8;

/* Where a line over clients falls: its highest point, those behind it that are below COLLAPSED of
   that, and of these the first and the lowest, which get rings. null if it does not fall so far. */
function collapseOf(points) {
  const there = points.filter(isPoint).sort((a, b) => a[0] - b[0]);
  const best = there.reduce((most, point) => point[1] > (most?.[1] ?? 0) ? point : most, null);
  const fallen = there.filter(([x, y]) => best && x > best[0] && y < COLLAPSED * best[1]);
  const lowest = fallen.reduce((least, point) => point[1] < least[1] ? point : least, fallen[0]);
  return fallen.length ? {best, fallen, lowest, ringed: [...new Set([fallen[0], lowest])]} : null;
}

const partOf = ([, y], [, best]) => `${Math.round(100 * y / best)} %`;

/* The same for people: what falls, of the series {name, points, papers, collapse}. */
function collapseTexts(series, about, unit) {
  const say = ({best, lowest}) => `${short(best[1])} with ${tick(best[0])} ${unit}, ` +
    `${short(lowest[1])} with ${tick(lowest[0])}: ${partOf(lowest, best)} of the best`;
  return series.filter(s => s.collapse).map(({name, papers = [], collapse}) => {
    const there = collapseOf(papers);
    return `${[about, name].filter(Boolean).join(', ')}: ${say(collapse)}` +
      (!papers.length ? '' : there ? `; the paper's: ${say(there)}`
        : "; the paper's does not fall so far");
  });
}

/* In legends */
const RING = {name: 'collapse: behind its highest point, below 80 % of that', style: 'ringed'};
const CROSS = {name: 'clients stood still: no throughput', style: 'crossed'};

/*
 * Lines of series {name, style, points: [[x, y], ...]}; a y that is not a number is a gap. A series
 * may have:
 *
 *   papers    [[x, y, source], ...]: for each source a dashed line with hollow marks
 *   collapse  what collapseOf() says of its points
 *   stalled   [x, ...]: where clients stood still, there is a cross at the bottom
 */
function lines(what, series, xScale, yScale, xUnit, yUnit) {
  const left = 46, right = WIDTH - 18, top = 10, bottom = 180;
  const x = value => left + (right - left) * place(xScale, value);
  const y = value => bottom - (bottom - top) * place(yScale, value);
  const steps = points => points.map((p, i) =>
    isPoint(p) ? `${isPoint(points[i - 1]) ? 'L' : 'M'}${x(p[0])} ${y(p[1])}` : '').join('');
  const drawPoint = (p, n, style, tip, few) => svg('g', {'data-tip': tip},
    svg('circle', {class: 'hit', cx: x(p[0]), cy: y(p[1]), r: 7}),
    few ? path(style, `M${x(p[0])} ${y(p[1])}${SHAPES[n % 5]}`) : '');
  const drawLine = ({style, points, papers = []}) => svg('g', {class: style},
    path('line', steps(points)), [...new Set(papers.map(([,, source]) => source))].map(source =>
      path('line dashed', steps(papers.filter(([,, of]) => of === source)))));
  const drawRings = ({style, collapse}) => svg('g', {class: style}, (collapse?.ringed ?? []).map(
    ([px, py]) => svg('circle', {class: 'ring', cx: x(px), cy: y(py), r: 7})));
  const drawPoints = ({name, style, points, papers = [], collapse}, n) => {
    const stride = 1 + Math.floor((points.length - 1) / TARGETS_MAX);
    const shown = points.filter((p, i) => isPoint(p) && i % stride === 0);
    const where = ([px, py]) => `${tick(px)}${xUnit}: ${short(py)}${yUnit}`;
    const fall = p =>
      collapse?.fallen.includes(p) ? ` (${partOf(p, collapse.best)} of the best)` : '';
    return svg('g', {class: style},
      papers.map(p => drawPoint(p, n, 'mark paper', `${name}, ${p[2]}, ${where(p)}`, true)),
      shown.map(p => drawPoint(p, n, 'mark', `${name}, ${where(p)}${fall(p)}`,
                               points.length <= MARKS_MAX)));
  };
  const crosses = series.flatMap(({name, style, stalled = []}) =>
    stalled.map(at => ({name, style, at})));
  const drawCross = ({name, style, at}, k) => {
    const cx = x(at), cy = bottom - 6 - 11 * crosses.slice(0, k).filter(c => c.at === at).length;
    return svg('g', {class: style, 'data-tip': `${name}, ${tick(at)}${xUnit}: clients stood still`},
      rect('hit', cx - 6, cy - 6, 12, 12), path('cross', `M${cx - 4} ${cy - 4}l8 8m0 -8l-8 8`));
  };
  const yTicks = yScale.ticks.flatMap(t => [path('grid', `M${left} ${y(t)}H${right}`),
                                            text('tick end', left - 6, y(t) + 3.5, tick(t))]);
  return chart(what, 204, [...yTicks, ...xTicks(xScale, x, bottom), ...series.map(drawLine),
                           ...series.map(drawRings), ...series.map(drawPoints),
                           ...crosses.map(drawCross)]);
}

/* Parts of rows that add up to `all`: {name, all, parts: [{style, value, tip}, ...]}. The rows have
   one scale, and the parts have their numbers in them, where there is room. */
function stacks(what, rows) {
  const at = layout(rows, 34), max = largest(rows.map(row => row.all)) || 1;
  return chart(what, at.bottom, rows.flatMap(({name, all, parts}, i) => {
    const y = at.ys[i] + at.top, base = y + BAR - 3;
    const title = at.tall ? text('name', 0, at.ys[i] + 15, name.slice(0, 50))
                          : text('name end', at.left - 7, base, name);
    let x = at.left;
    const drawn = parts.filter(part => part.value > 0).flatMap(({style, value, tip}) => {
      const width = at.room * value / max, middle = x + width / 2;
      x += width;
      return [svg('g', {class: style, 'data-tip': `${name}, ${tip}: ${value}`},
                  rect('part', x - width, y - 1, Math.max(width - 1, 1), BAR + 2)),
              width < 18 ? [] : text(`in ${style} middle`, middle, base, String(value))].flat();
    });
    return [title, ...drawn,
            text('value', x + 6, base, String(all))];
  }));
}
