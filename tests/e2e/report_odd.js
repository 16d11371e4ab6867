// What must be true in the page of the results that report_odd.py writes: an expression in each line.

// Names are text.
document.scripts.length === 2 && !document.querySelector('[onload], main b:not(.claims b, .links b), main script')
document.querySelector('h1').textContent === "Benchmark on <b>&'</script><!--"
[...document.querySelectorAll('th')].some(cell => cell.textContent === '"><svg onload=x>')
[...document.querySelectorAll('.legend li')].some(item => item.textContent === '\u2028race')

// Lines over clients need at least two numbers of them, which three of the results have.
[...document.querySelectorAll('h2')].filter(head => head.textContent === 'Throughput over clients').length === 3
!!document.querySelector('[data-tip="RACE, 8 clients: 70.0 operations per second"]')

// A workload that is listed twice has two charts. Repeats of a workload have one, of the median.
[...document.querySelectorAll('figcaption')].some(caption => caption.textContent === 'c (no. 2) 100 % get')
!document.body.innerText.includes('(no. 3)')
!!document.querySelector('[data-tip="RACE: 35.0 operations per second"]')
!document.querySelector('[data-tip="RACE: 34.0 operations per second"], [data-tip^="RACE: 36.0"], [data-tip^="RACE: 37.0"]')
[...document.querySelectorAll('tr')].map(row => row.innerText).join().includes('RACE\tslowest\t34.0,RACE\tfastest\t37.0')

// What went wrong is said.
document.body.innerText.includes('Nothing was measured.')
document.body.innerText.includes('RACE, a, 1 client: stopped after 90 of 100 operations by FAR_POOL_FULL')
document.body.innerText.includes('RACE, b, 1 client: interrupted after 90 of 100 operations')
document.body.innerText.includes('CHIME, c, 2 clients: 3 of 90 operations failed, the first with FAR_CONTENTION')
document.body.innerText.includes('cell 7 was not measured: no memory')
show({get experiments() { throw new Error('x'); }}, 6).textContent === 'Result 7 cannot be drawn: Error: x'

// Tables with an axis have lines. The head "paper" is no place on the axis.
document.querySelectorAll('#rows .line').length === 2
!!document.querySelector('#rows [data-tip="RACE, 0.99: 2.50"]')
!document.querySelector('#rows [data-tip$=": 7.00"]')
document.querySelector('#columns .legend').innerText.split('\n').join() === 'race,race, p99,chime,chime, p99'
[...document.querySelectorAll('#columns .tick.middle')].map(tick => tick.textContent).join() === '1,64'
// Other tables have bars, for each column with two numbers.
document.querySelectorAll('#bars svg').length === 1
!!document.querySelector('#bars [data-tip="CHIME: 1.00"]')
[...document.querySelectorAll('#bars td')].some(cell => cell.textContent === '> 2')
document.querySelectorAll('.verdict.bad').length === 4
document.querySelector('.claims li').innerText.replace(/\s+/g, ' ') === 'does not hold C1 (5.4): it rises Here: it falls'

// All links lead somewhere, and names of two results do not meet.
[...document.querySelectorAll('a[href^="#"]')].length > 8 && [...document.querySelectorAll('a[href^="#"]')].every(a => document.getElementById(decodeURIComponent(a.hash.slice(1))))
new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size === document.querySelectorAll('[id]').length
document.querySelector('#rows-2 h2').textContent === 'rows: x'

// The summary comes first: verdicts of each paper, with links to the claims.
[...document.querySelectorAll('header')].at(-3).nextElementSibling.querySelector('h2').textContent === 'Summary'
[...[...document.querySelectorAll('header')].at(-3).nextElementSibling.querySelectorAll('table')[0].rows].map(row => row.innerText).join() === 'paper\tholds\tsame direction, other size\tdoes not hold\tcannot be told\tnot run,RACE\t1 1\t0\t0\t0\t1 12,SHARD\t0\t0\t1 1\t0\t0,X\t1 X\t0\t0\t0\t0'
document.querySelector('[aria-label="SHARD-CLAIM-1"]').hash === '#SHARD-CLAIM-1' && document.getElementById('SHARD-CLAIM-1').textContent.includes('it <b>rises</b>')
!!document.querySelector('[data-tip="RACE, holds: 1"] > .part') && !!document.querySelector('[data-tip="RACE, not run: 1"]') && !document.querySelector('[data-tip="RACE, does not hold: 1"]')
[...[...document.querySelectorAll('header')].at(-3).nextElementSibling.querySelectorAll('table')[1].rows].map(row => row.innerText).join() === "experiment\tholds\tsame direction, other size\tdoes not hold\tcannot be told\tnot run\tpapers' numbers\tours within a quarter,beside\t2\t0\t1\t0\t1\t2\t0,falls\t0\t0\t0\t0\t0\t3\t2,alike\t0\t0\t0\t0\t0\t0\t0,rows\t0\t0\t0\t0\t0\t0\t0"
[...[...document.querySelectorAll('header')].at(-3).nextElementSibling.querySelectorAll('.notes li')].map(note => note.innerText).join('|') === "falls: Rates: RACE: 10.0 with 16 clients, 5.00 with 128: 50 % of the best; the paper's does not fall so far|falls: Rates: A, RACE: 4.00 with 16 clients, 1.00 with 128: 25 % of the best|beside: race-1, c, seed 2: clients stood still, 7.50 s for 1,000 operations|falls: cell 7 was not measured: no memory|rows: cell 7 was not measured: no memory"

// Numbers of papers are beside ours, on one scale. Without a number of ours, there is none.
document.querySelectorAll('#beside svg').length === 1
document.querySelectorAll('#beside g.paper').length === 2
!!document.querySelector('#beside [data-tip="RACE, paper: <b>A: 4.00"]') && !!document.querySelector('#beside [data-tip="RACE, paper: B: 3.00"]')
(() => { const [ours, one, two] = ['rect.fill', 'g.paper rect.outline', 'g.paper ~ g.paper rect.outline'].map(s => document.querySelector('#beside svg ' + s).width.baseVal.value); return one === 2 * ours && two === 1.5 * ours; })()
document.querySelectorAll('#beside .hatch').length === 1
[...document.querySelectorAll('#beside .legend li')].map(item => item.innerText.trim()).join() === 'here,paper: <b>A,paper: B'
[...document.querySelectorAll('#beside svg text')].filter(t => t.textContent === 'clients stood still').length === 1
[...document.querySelectorAll('#beside td')].filter(cell => cell.innerText === 'stood still').length === 1
document.querySelectorAll('#beside td.theirs').length === 8
(() => { const [details] = [...document.querySelectorAll('#beside details')].filter(d => d.textContent.startsWith("The papers' numbers")); details.open = true; const text = [...details.querySelectorAll('tbody tr')].map(row => row.innerText).join(); details.open = false; return text === 'RACE\tM/s\t2.00\t4.00\t0.500\t<b>A,RACE\tM/s\t2.00\t3.00\t0.667\tB'; })()
document.querySelectorAll('#falls .line.dashed').length === 1 && document.querySelectorAll('#falls .mark.paper').length === 2
!!document.querySelector('#falls [data-tip="RACE, paper: A, 16: 9.00"]')
!!document.querySelector('#falls [data-tip="RACE, paper: A: 9.00"]')

// Rows that begin alike are told apart, and have the index's colour.
[...document.querySelectorAll('#alike g[data-tip]')].map(mark => mark.getAttribute('class') + ' ' + mark.dataset.tip).join('|') === 'chime CHIME, 1 clients: 1.00|chime CHIME, 128 clients: 2.00|race RACE: 4.00'

// A result without claims has no chart of them.
claimSummary([{name: 'x'}]).length === 0 && reproduction('7').length > 3

// Collapses have a ring, and clients that stood still a cross. Over skew, nothing collapses.
document.querySelectorAll('#falls .ring').length === 2 && document.querySelectorAll('.ring').length === 3
!!document.querySelector('#falls [data-tip="RACE, 128: 5.00 (50 % of the best)"]')
!!document.querySelector('#falls [data-tip="SHARD, 128: clients stood still"] > .cross') && document.querySelectorAll('.cross').length === 1
[...document.querySelectorAll('#falls .legend')][0].innerText.includes('below 80 %') && [...document.querySelectorAll('#falls .legend')][0].innerText.includes('clients stood still')
document.querySelector('#falls .notes li').innerText === "RACE: 10.0 with 16 clients, 5.00 with 128: 50 % of the best; the paper's does not fall so far"
[...document.querySelectorAll('.notes li')].some(note => note.innerText === 'c, RACE: 70.0 with 8 clients, 40.0 with 64: 57 % of the best')
collapseOf([[1, 10], [2, 8], [4, 12], [8, 9.61], [16, NaN]]) === null && collapseOf([]) === null && collapseOf([[1, 0], [2, 0]]) === null
collapseOf([[4, 7], [1, 10], [2, 6], [8, 9]]).ringed.join() === '2,6'
// A table whose rows have two names has a chart for each of the first, and a single number is no line.
[...document.querySelectorAll('#falls figcaption')].map(caption => caption.textContent).join() === ' clients,16 to 1 ,A clients,B clients'

// What limits the network: of the seeds, the median. At 100 %, it allows more.
document.querySelectorAll('#falls td.meter').length === 0
(() => { const [details] = [...document.querySelectorAll('#beside details')].filter(d => d.textContent.startsWith('How near')); details.open = true; const text = [...details.querySelectorAll('tbody tr')].map(row => row.innerText).join(); details.open = false; return text === "race-1\ta\tRACE\t100\tthe memory node's NIC\tverbs\t0.500\t200\t0.500\t0.200,race-1\tb\tRACE\t70.0\tthe clients' NIC\tbytes sent\t0.980\t71.4\t0\t0.980"; })()
[...document.querySelectorAll('h2')].filter(head => head.textContent.startsWith('How near')).length === 2
[...document.querySelectorAll('tr')].some(row => row.innerText === 'beside\t2\t0\t0\t0\t0\t1\t0\t1')
[...document.querySelectorAll('tr')].some(row => row.innerText === "a\tRACE\t1\t100\tthe memory node's PCIe\tbytes\t0.500\t200\t0.250\t0.500")
!!document.querySelector('[data-tip="RACE: the memory node\'s PCIe, bytes, 50 % of the time"]')

// Bars that are no numbers keep their name.
bars('x', [{name: 'one', style: 'race', value: NaN}, {name: 'two', style: 'race', value: 3, label: '3'}]).textContent === 'onetwo3'

// Numbers have three digits.
[0, 1, 2.5, 0.0412, 9.996, 99.96, 999.4, 999.6, 1234567, 25e4, -1234.4, 2e12, NaN, 1/0].map(short).join() === '0,1.00,2.50,0.0412,10.0,100,999,1.00 k,1.23 M,250 k,-1.23 k,2.00 T,-,-'
[0, 1, 2.5, 0.0412, 9.996, 99.96, 999.4, 999.6, 1234567, 25e4, -1234.4, 2e12, NaN, 1/0].map(tick).join() === '0,1,2.5,0.0412,10,100,999,1 k,1.23 M,250 k,-1.23 k,2 T,-,-'
[0, 1, 999.4, 999.6, 1234567, 25e4, -1234.4, 2e12, NaN, 1/0].map(grouped).join(' ') === '0 1.00 999 1,000 1,234,567 250,000 -1,234 2,000,000,000,000 - -'

// Linear scales end with a tick. One of nothing is one long.
[100, 7.3, 1234567, 0.003].map(high => linear(high).ticks.map(tick).join(' ')).join() === '0 25 50 75 100,0 2 4 6 8,0 500 k 1 M 1.5 M,0 0.001 0.002 0.003'
linear(0).high === 1 && linear(NaN).high === 1
// Logarithmic scales have 1, 2, 5, or powers of ten.
[[0.31, 4.2], [0.3, 900], [1e-6, 1e9]].map(([low, high]) => logarithmic(low, high).ticks.map(tick).join(' ')).join() === '0.2 0.5 1 2 5,1 10 100 1 k,0.000001 0.001 1 1 k 1 M 1 G'
logarithmic(5, 5).high === 10
// Scales of any number end.
[[1e-308, 1e308], [1e20, 1e21], [1e-20, 1e-20]].every(([low, high]) => { const s = logarithmic(low, high); return s.high > s.low && s.ticks.length >= 2 && s.ticks.length <= 7; })
[1e308, 1e-308].every(high => linear(high).ticks.length >= 3 && linear(high).ticks.length <= 5)
// Of many ranges, the ends enclose the values, and there are neither too many ticks nor too few.
(() => { for (let low = 1e-3; low < 1e5; low *= 1.7) for (let f = 1.01; f < 1e6; f *= 1.9) { const log = logarithmic(low, low * f), lin = linear(low * f); if (log.low > low * 1.000001 || log.high < low * f * 0.999999 || log.ticks.length < 1 || log.ticks.length > 7 || lin.high < low * f * 0.999999 || lin.ticks.length < 3 || lin.ticks.length > 5) return [low, f]; } return true; })()
// Places are parts of the axis.
[25, -1, 101, NaN].map(value => place(linear(100), value)).join() === '0.25,0,1,0'
[10, 0, 1000].map(value => place(logarithmic(1, 100), value)).join() === '0.5,0,1'
