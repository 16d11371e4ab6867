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
