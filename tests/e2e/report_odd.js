// What must be true in the page of the results that report_odd.py writes: an expression in each line.

// Names are text.
document.scripts.length === 2 && !document.querySelector('[onload], main b:not(.claims b), main script')
document.querySelector('h1').textContent === "Benchmark on <b>&'</script><!--"
[...document.querySelectorAll('th')].some(cell => cell.textContent === '"><svg onload=x>')
[...document.querySelectorAll('.legend li')].some(item => item.textContent === '\u2028race')

// Lines over clients need at least two numbers of them, which two of the results have.
[...document.querySelectorAll('h2')].filter(head => head.textContent === 'Throughput over clients').length === 2
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
document.querySelectorAll('.verdict.bad').length === 3
document.querySelector('.claims li').innerText.replace(/\s+/g, ' ') === 'does not hold C1 (5.4): it rises Here: it falls'

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
