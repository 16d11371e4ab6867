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
  const rateLines = label => runs.byIndex(label, (_, index) => {
    const points = runs.clients.map(clients => [clients, rateOf(runs.run(label, index, clients))]);
    return {points, collapse: collapseOf(points)};
  });
  const draw = label => {
    const series = rateLines(label);
    const high = largest(series.flatMap(s => s.points.map(([, rate]) => rate)));
    return lines('operations per second over clients', series, through(runs.clients, true),
                 linear(high), ' clients', ' operations per second');
  };
  const collapses = runs.labels.flatMap(label => collapseTexts(rateLines(label), label, 'clients'));
  const rows = runs.labels.flatMap(label => runs.indexes.map(index => [
    named(label), named(titleOf(index)),
    ...runs.clients.map(clients => number(runs.run(label, index, clients), 'ops_per_s'))]));
  return section('Throughput over clients',
    'Operations per second over the number of clients. All other charts are of the runs with the ' +
    'most clients.', collapses.length ? legend([RING]) : '', runs.workloadPanels(draw),
    notes(collapses),
    table('Operations per second by clients', false,
      ['workload', 'index', ...runs.clients.map(tick)], rows));
}

/* How near the runs are to what the modelled network allows. */
function benchLimits(runs) {
  if (!runs.all.some(busiest)) return '';
  const draw = label => bars('share of the time for which the busiest part was busy, by index',
    runs.byIndex(label, run => {
      const most = run && busiest(run);
      return {value: most?.share ?? NaN, label: most ? percent(most.share) : '',
              tip: most && `${most.name}, ${most.what}, ${percent(most.share)} of the time`};
    }), 1);
  const measured = runs.labels.flatMap(label => runs.indexes.flatMap(index => runs.clients
    .map(clients => ({label, run: runs.run(label, index, clients)}))))
    .filter(({run}) => run && busiest(run));
  const names = ({label, run}) =>
    [named(label), named(titleOf(run.index)), named(tick(run.clients))];
  const heads = ['workload', 'index', 'clients'];
  return section('How near the limits of the network', LIMIT_NOTE,
    runs.workloadPanels(draw),
    table('The busiest part, and what it allows', true, [...heads, ...LIMIT_HEADS],
          measured.map(one => [...names(one), ...limitCells(one.run)])),
    table('The share of the time for which each part was busy', false, [...heads, ...PART_HEADS],
          measured.map(one => [...names(one), ...partCells(one.run)])));
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
  const parts = [throughput, throughputOverClients, benchLimits,
                 ...(costs ? [latency, distribution] : []), timelines,
                 ...(costs ? [roundTrips, bytes] : []), memory];
  return [about, benchFacts(result, runs), troubles(runs), legend(runs.byIndex('', () => ({}))),
          ...parts.map(part => part(runs))];
}
