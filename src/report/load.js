/* ---- what limits a run on a modelled network ------------------------------------------------- */

/* The parts of a run's `load`: the member, its name, and what it counts. */
const PARTS = [
  ['node_verbs', "the memory node's NIC", 'verbs'],
  ['node_receives', "the memory node's NIC", 'bytes received'],
  ['node_sends', "the memory node's NIC", 'bytes sent'],
  ['node_pcie', "the memory node's PCIe", 'bytes'],
  ['node_word', 'one word', 'atomics'],
  ['client_verbs', "the clients' NIC", 'verbs'],
  ['client_sends', "the clients' NIC", 'bytes sent'],
  ['client_receives', "the clients' NIC", 'bytes received'],
  ['client_threads', "the clients' threads", 'CPU time']];

const LIMITED = 0.9; // a part that is busy for so much of the time limits the run

const shareOf = (run, part) => numberOf(run, `load/${part}`);

/* The part that was busiest, {part, name, what, share}; null if the run was not on the model. */
function busiest(run) {
  const parts = PARTS.map(([part, name, what]) => ({part, name, what, share: shareOf(run, part)}))
                     .filter(({share}) => share > 0);
  return parts.reduce((most, one) => one.share > (most?.share ?? 0) ? one : most, null);
}

const percent = share => `${tick(100 * share)} %`;

/* A share as a number and a bar. */
function meter(run, {part, share}) {
  const cell = number(run, `load/${part}`);
  cell.classList.add('meter');
  cell.style.setProperty('--part', `${Math.min(100 * share, 100)}%`);
  return cell;
}

/* What limits NICs: the part of each kind that was busiest stands for it. */
const NIC_VERBS = ['node_verbs', 'client_verbs'];
const NIC_BYTES = ['node_receives', 'node_sends', 'node_pcie', 'client_sends', 'client_receives'];
const busiestOf = (run, parts) =>
  parts.reduce((most, part) => shareOf(run, part) > shareOf(run, most) ? part : most);

/* What the table has of a run: its rate, the busiest part, what that would allow, and the NICs. */
const LIMIT_HEADS = ['operations/s', 'busiest part', 'busy with', 'share of the time',
                     'operations/s at 100 %', 'a NIC, with verbs', 'a NIC, with bytes'];
const PART_HEADS = PARTS.map(([, name, what]) => `${name.replace(/^the /, '')}: ${what}`);

function limitCells(run) {
  const most = busiest(run), rate = numberOf(run, 'ops_per_s');
  return [number(run, 'ops_per_s'), textField(most.name), textField(most.what), meter(run, most),
          field(grouped(Math.max(rate / most.share, rate))),
          ...[NIC_VERBS, NIC_BYTES].map(parts => number(run, `load/${busiestOf(run, parts)}`))];
}

const partCells = run => PARTS.map(([part]) => number(run, `load/${part}`));

/* Many runs, by what limits them. */
const LIMITS = [["the memory node's NIC: verbs", ['node_verbs']],
                ["the memory node's NIC: bytes", ['node_receives', 'node_sends', 'node_pcie']],
                ['one word: atomics', ['node_word']],
                ["the clients' NIC: verbs", ['client_verbs']],
                ["the clients' NIC: bytes", ['client_sends', 'client_receives']],
                ["the clients' threads", ['client_threads']]];
const limitOf = run => {
  const {part, share} = busiest(run);
  return share >= LIMITED ? LIMITS.findIndex(([, parts]) => parts.includes(part)) : LIMITS.length;
};

const LIMIT_NOTE = 'The busiest part of the modelled network, and the share of the time for ' +
  'which it was busy, from 0 to 1. That is how near its limit the workload is: if the part were ' +
  'busy all the time, and each operation needed it for as long as here, the throughput would be ' +
  'that at 100 %. From 0.9 on, the part limits the workload. Below, clients wait: for round ' +
  'trips, because too few operations are in flight, or for each other.';
