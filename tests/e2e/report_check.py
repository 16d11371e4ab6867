#!/usr/bin/env python3
"""Checks a page of --report in a browser, against the JSON of the same results.

usage: report_check.py PAGE CHROMIUM FOLDER EXPRESSIONS JSON...

PAGE has the results of the JSON files, in this order. Each line of the file EXPRESSIONS is an expression of
JavaScript that must be true in the page; empty lines and comments (//) are left out. Pictures of the page,
on a phone and on a desk, light and dark, are left in FOLDER.
"""
import base64
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict

BROWSER_SECONDS = 600
WIDTHS = (390, 1280)
THEMES = ("light", "dark")

# Run in the page. The verdict is a list of what is wrong, and some counts.
CHECK = """
const wrong = [], seen = {texts: 0, marks: 0, charts: 0, bars: 0, points: 0, width: innerWidth};
const page = document.documentElement;
const closed = [...document.querySelectorAll('details:not([open])')];
for (const details of closed) details.open = true;
if (page.scrollWidth > innerWidth) wrong.push(`the page is ${page.scrollWidth} pixels wide`);
for (const row of document.querySelectorAll('tr'))
  if (row.offsetHeight > 120) wrong.push(`a row of a table is ${row.offsetHeight} pixels high: ${row.innerText}`);
for (const details of closed) details.open = false;
const apart = (a, b) => a.right <= b.left + 0.5 || b.right <= a.left + 0.5 ||
                        a.bottom <= b.top + 0.5 || b.bottom <= a.top + 0.5;
// The number that people read in a text: 1,234 or 1.23 M.
const read = text => {
  const [, digits, unit] = text.match(/^(-?[\\d,.]+(?:e[-+]?\\d+)?)(?: ([kMGT]))?(?! *[\\d])/) ?? [];
  return Number(digits?.replaceAll(',', '')) * 1000 ** ' kMGT'.indexOf(unit ?? ' ');
};
for (const svg of document.querySelectorAll('svg')) {
  const frame = svg.getBoundingClientRect(), what = svg.getAttribute('aria-label');
  const texts = [...svg.querySelectorAll('text')].map(
      t => ({text: t.textContent, box: t.getBoundingClientRect()}));
  seen.charts++;
  seen.texts += texts.length;
  if (!what || svg.getAttribute('role') != 'img') wrong.push('a chart has no name');
  for (const t of texts) {
    if (t.box.left < frame.left - 1 || t.box.right > frame.right + 1 || t.box.top < frame.top - 1 ||
        t.box.bottom > frame.bottom + 1)
      wrong.push(`'${t.text}' is outside of its chart, ${what}`);
    if (t.box.height < 10) wrong.push(`'${t.text}' is only ${t.box.height} pixels high`);
  }
  for (let i = 0; i < texts.length; i++)
    for (let k = 0; k < i; k++)
      if (!apart(texts[i].box, texts[k].box))
        wrong.push(`'${texts[k].text}' and '${texts[i].text}' overlap in a chart, ${what}`);
  // Bars are as long as the numbers at their ends.
  const bars = [...svg.querySelectorAll('g > rect.fill, g.paper > rect.outline')].filter(
      bar => svg.querySelector('path.axis') && bar.width.baseVal.value > 2);
  const units = bars.map(bar => {
    const label = bar.parentNode.nextSibling.textContent.split(' + ').map(read);
    const pale = bar.parentNode.querySelector('.pale');
    return (bar.width.baseVal.value + (pale ? pale.width.baseVal.value : 0)) / (label[0] + (label[1] || 0));
  });
  seen.bars += bars.length;
  for (const unit of units)
    if (!(Math.abs(unit / units[0] - 1) < 0.02 + 2 / Math.min(...bars.map(b => b.width.baseVal.value))))
      wrong.push(`bars and their numbers differ: ${units} in a chart, ${what}`);
  // Points are where the ticks say. Scales of y are linear.
  const ticks = [...svg.querySelectorAll('.tick.end')].map(
      t => ({value: read(t.textContent), y: Number(t.getAttribute('y')) - 3.5}));
  for (const point of ticks.length ? svg.querySelectorAll('g > circle.hit') : []) {
    const value = read(point.parentNode.dataset.tip.replace(/^.*: /, ''));
    const [low, high] = [ticks[0], ticks.at(-1)];
    const y = low.y + (high.y - low.y) * (value - low.value) / (high.value - low.value);
    seen.points++;
    if (!(Math.abs(y - point.cy.baseVal.value) < 2))
      wrong.push(`${point.parentNode.dataset.tip} is at ${point.cy.baseVal.value}, not at ${y}, ${what}`);
  }
}
for (const mark of document.querySelectorAll('[data-tip]')) {
  seen.marks++;
  const tip = document.getElementById('tip');
  mark.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: 9, clientY: 9}));
  if (tip.hidden || !tip.textContent || tip.textContent != mark.dataset.tip)
    wrong.push(`no value is shown under the pointer for ${mark.dataset.tip}`);
  if (/NaN|undefined|Infinity/.test(mark.outerHTML)) wrong.push(`no number: ${mark.outerHTML}`);
}
document.getElementById('tip').hidden = true;
for (const table of document.querySelectorAll('table')) {
  const columns = table.querySelectorAll('thead th[scope=col]').length;
  for (const row of table.querySelectorAll('tbody tr'))
    if (row.children.length != columns || row.children[0].scope != 'row')
      wrong.push(`a row of a table has other columns than its head: ${row.textContent}`);
}
const shown = document.querySelector('main').innerText.match(/.*(NaN|undefined|\\[object|cannot be drawn).*/);
if (shown) wrong.push(`the page shows '${shown[0]}'`);
JSON.stringify({wrong: wrong.slice(0, 20), seen: seen, height: page.scrollHeight,
                paper: getComputedStyle(document.body).backgroundColor});
"""

# All numbers of tables: their path, their value, and what people read.
NUMBERS = """
JSON.stringify([...document.querySelectorAll('[data-json]')].map(
    cell => [cell.dataset.json, Number(cell.dataset.value), cell.textContent]));
"""

# What is shown under the pointer: the text of the mark, its chart, and the caption of that.
TIPS = """
JSON.stringify([...document.querySelectorAll('figure [data-tip]')].map(mark => [
    mark.closest('figure').querySelector('figcaption').textContent.trim(),
    mark.closest('svg').getAttribute('aria-label'), mark.dataset.tip]));
"""

TITLES = {"race": "RACE", "sephash": "SepHash", "shard": "SHARD", "rcuckoo": "RCuckoo", "chime": "CHIME"}

# What is shown under the pointer in charts with bars of a kind of operation.
BARS = {
    "latency by index, in microseconds":
        (r"p50 (.+) µs, p99 (.+) µs, p99\.9 (.+) µs", ("p50_us", "p99_us", "p999_us")),
    "round trips of an operation by index":
        (r"(.+) round trips \(p99: (.+)\), (.+) verbs", ("rtts", "rtts_p99", "verbs")),
    "bytes of an operation by index": (r"(.+) bytes read, (.+) bytes written", ("bytes_read", "bytes_written")),
}

# What a page must show of each kind of operation.
COSTS = ("count", "p50_us", "p99_us", "p999_us", "rtts", "rtts_p99", "rtts_p999", "verbs", "bytes_read",
         "bytes_written")
# And of the memory of each table.
SPACE = ("keys", "load_factor", "index_bytes", "block_bytes", "client_cache_bytes", "splits")
# Charts show so many points of a line at least.
POINTS = 120


def fail(message):
    print(message, file=sys.stderr)
    sys.exit(1)


def find(results, path):
    """The value at a path such as 0/runs/3/ops_per_s."""
    at = results
    for part in path.split("/"):
        at = at[int(part)] if isinstance(at, list) else at[part]
    return at


def shown(text):
    """The number that people read: 1,234 or 1.23 M."""
    match = re.fullmatch(r"(-?[\d,.]+(?:e[-+]\d+)?)(?: ([kMGT]))?", text)
    if not match:
        fail(f"'{text}' is not a number")
    return float(match[1].replace(",", "")) * 1000 ** " kMGT".index(match[2] or " ")


def close(a, b, part):
    return abs(a - b) <= part * max(abs(a), abs(b))


def check_numbers(cells, results):
    for path, value, text in cells:
        expected = find(results, path)
        if value != expected or not close(shown(text), expected, 0.006):
            fail(f"{path} is {expected}, but the page has {value} and shows {text}")


def mix_of(run):
    """The operations of a run as its captions have them: "50 % get, 50 % update"."""
    total = sum(cost["count"] for cost in run["per_op"].values())
    return ", ".join(f"{int(100 * cost['count'] / total + 0.5)} % {op}" for op, cost in run["per_op"].items())


def repeats_of(result, path):
    """The rate, path and JSON of the runs of each workload, index and number of clients, from slow to fast.
    Also the captions of the workloads, which are of their first runs."""
    groups, captions, listed = defaultdict(list), {}, defaultdict(int)
    for number, run in enumerate(result["runs"]):
        key = (run["index"], run["processes"] * run["threads"])
        place = (run["workload"], *key, run.get("repeat", 1))
        listed[place] += 1
        label = run["workload"] + (f" (no. {listed[place]})" if listed[place] > 1 else "")
        captions.setdefault(label, f"{label} {mix_of(run)}")
        groups[(label, *key)].append((run["ops_per_s"], f"{path}/runs/{number}", run))
    for group in groups.values():
        group.sort(key=lambda one: one[0])
    return groups, captions


class Tips:
    """What the charts show under the pointer."""

    def __init__(self, tips):
        self.tips = defaultdict(list)
        for caption, chart, tip in tips:
            self.tips[caption, chart].append(tip)

    def expect(self, caption, chart, pattern, numbers):
        """One of the marks shows these numbers, in the groups of the pattern."""
        for tip in self.tips[caption, chart]:
            match = re.fullmatch(pattern, tip)
            if match and all(text == "-" if number is None else text != "-" and close(shown(text), number, 0.006)
                             for text, number in zip(match.groups(), numbers)):
                return
        fail(f"no mark of the chart '{caption}', {chart}, shows {numbers} as {pattern}: "
             f"{self.tips[caption, chart][:20]}")


def check_tips(tips, result):
    """The charts of a benchmark show what the JSON has."""
    groups, captions = repeats_of(result, "")
    all_clients = {clients for _, _, clients in groups}
    timed = {label for (label, _, clients), group in groups.items()
             if clients == max(all_clients) and len(group[(len(group) - 1) // 2][2].get("timeline", [])) >= 3}
    for (label, index, clients), group in groups.items():
        run = group[(len(group) - 1) // 2][2]
        name = re.escape(TITLES.get(index, index))
        if len(all_clients) > 1:
            tips.expect(captions[label], "operations per second over clients",
                        rf"{name}, (.+) clients: (.+) operations per second(?: \(.+ of the best\))?",
                        (clients, run["ops_per_s"]))
        if clients != max(all_clients):
            continue
        tips.expect(captions[label], "operations per second by index",
                    rf"{name}: (.+) operations per second", (run["ops_per_s"],))
        if run.get("load"):
            tips.expect(captions[label], "share of the time for which the busiest part was busy, by index",
                        rf"{name}: .+, .+, (.+) % of the time", (100 * max(run["load"].values()),))
        windows = run.get("timeline", []) if label in timed else []
        for window in windows if len(windows) <= POINTS else []:
            tips.expect(captions[label], "operations per second over time",
                        rf"{name}, (.+) s: (.+) operations per second", (window["seconds"], window["ops_per_s"]))
        for op, cost in run["per_op"].items():
            for chart, (pattern, members) in BARS.items():
                tips.expect(f"{label} {op}", chart, f"{name}: {pattern}", [cost.get(m) for m in members])
            for part, microseconds in cost.get("latency_us", []):
                if microseconds > 0 and part <= 0.999:
                    tips.expect(f"{label} {op}", "percent of the operations over microseconds",
                                rf"{name}, (.+) µs: (.+) % of the operations", (microseconds, 100 * part))


def expected_of_bench(result, path):
    """Paths that must be in the page: the medians, their operations, and the spread."""
    groups, captions = repeats_of(result, path)
    most, paths, spaces = max((clients for _, _, clients in groups), default=0), [], {}
    for (_, _, clients), group in groups.items():
        _, median, run = group[(len(group) - 1) // 2]
        paths.append(f"{median}/ops_per_s")
        if clients != most:
            continue
        paths += [f"{median}/load/{part}" for part in run.get("load") or ()]
        paths += [f"{one[1]}/ops_per_s" for one in (group[0], group[-1]) if len(group) > 1]
        paths += [f"{median}/per_op/{op}/{cost}" for op, costs in run["per_op"].items()
                  for cost in COSTS if costs["count"] > 0 and cost in costs]
    for label in captions:  # the last workload counts
        for (of, index, clients), group in groups.items():
            _, median, run = group[(len(group) - 1) // 2]
            if of == label and clients == most and run.get("space", {}).get("keys", 0) > 0:
                spaces[index] = [f"{median}/space/{member}" for member in SPACE]
    return paths + sum(spaces.values(), [])


def expected_of_reproduce(result, path):
    """The same of experiments: all numbers of their tables, and the papers' that are beside one of ours."""
    tables = [(f"{path}/experiments/{e}/tables/{t}", table)
              for e, experiment in enumerate(result["experiments"])
              for t, table in enumerate(experiment.get("tables", []))]
    return [f"{where}/rows/{r}/{c}" for where, table in tables
            for r, row in enumerate(table["rows"])
            for c, value in enumerate(row) if isinstance(value, (int, float))] + [
           f"{where}/paper/{n}/number" for where, table in tables
           for n, paper in enumerate(table.get("paper", []))
           if isinstance(table["rows"][paper["row"]][paper["column"]], (int, float))]


def check_all_there(cells, results):
    there = {path for path, _, _ in cells}
    for number, result in enumerate(results):
        expected = expected_of_reproduce if "experiments" in result else expected_of_bench
        missing = [path for path in expected(result, str(number)) if path not in there]
        if missing:
            fail(f"the page lacks {len(missing)} numbers: {missing[:9]}")


def undated(result):
    """The result without the time of day: page and JSON may be written in two different seconds."""
    return {**result, "time": None}


def check_text(page, results):
    """The page has the results, and loads nothing from elsewhere."""
    before, rest = page.split('<script type="application/json" id="results">')
    text, after = rest.split("</script>", 1)
    if [undated(result) for result in json.loads(text)] != [undated(result) for result in results]:
        fail("the JSON in the page is not that of the results")
    for attribute, value in re.findall(r'\b(src|href)="([^"]*)"', before + after):
        if not value.startswith(("#", "data:")):
            fail(f'{attribute}="{value}" is not in the page')
    if re.search(r"@import|url\(|@[A-Z]+@", before + after):
        fail("the page loads something, or was not joined")


class Browser:
    """A page in Chromium, driven by its DevTools protocol over two pipes: its descriptors 3 and 4."""

    def __init__(self, chromium, page, folder):
        asked, self.ask = os.pipe()
        self.answers, answered = os.pipe()
        low = [fcntl.fcntl(asked, fcntl.F_DUPFD, 10), fcntl.fcntl(answered, fcntl.F_DUPFD, 10)]
        self.process = subprocess.Popen(
            [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--no-first-run", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             f"--user-data-dir={folder}/profile", "about:blank"],
            close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=lambda: (os.dup2(low[0], 3), os.dup2(low[1], 4)))
        for descriptor in (asked, answered, *low):
            os.close(descriptor)
        self.calls, self.console, self.loaded, self.rest, self.session = 0, [], False, b"", None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")
        self.open(page)

    def open(self, page):
        self.loaded = False
        self.call("Page.navigate", url=f"file://{page}")
        while not self.loaded:
            self.take(self.read())

    def read(self):
        while b"\0" not in self.rest:
            more = os.read(self.answers, 1 << 16)
            if not more:
                fail("Chromium has ended")
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def take(self, event):
        method = event.get("method")
        if method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.console.append(json.dumps(event["params"]))
        self.loaded |= method == "Page.loadEventFired"

    def call(self, method, **params):
        self.calls += 1
        message = {"id": self.calls, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.ask, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") != self.calls:
                self.take(answer)
            elif "error" in answer:
                fail(f"{method}: {answer['error']}")
            else:
                return answer["result"]

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)

    def picture(self, name):
        picture = self.call("Page.captureScreenshot", format="png")
        with open(name, "wb") as file:
            file.write(base64.b64decode(picture["data"]))

    def close(self):
        self.process.kill()
        self.process.wait()


def evaluate(browser, expression):
    answer = browser.call("Runtime.evaluate", expression=expression)
    if "exceptionDetails" in answer:
        fail(f"{expression[:200]}: {answer['exceptionDetails']}")
    return answer["result"].get("value")


def check_view(browser, width, theme):
    """Checks the page at this width and in this theme. Returns the verdict."""
    browser.size(width, 900)
    browser.call("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": theme}])
    verdict = json.loads(evaluate(browser, "{" + CHECK + "}"))
    seen = verdict["seen"]
    if verdict["wrong"]:
        fail(f"at {width} pixels, {theme}:\n" + "\n".join(verdict["wrong"]))
    if seen["width"] != width:
        fail(f"the page is {seen['width']} pixels wide, but the window has {width}")
    if min(seen["charts"], seen["texts"], seen["marks"], seen["bars"] + seen["points"]) == 0:
        fail(f"there is nothing to see: {seen}")
    return verdict


def check_look(browser, pictures):
    papers = set()
    for width in WIDTHS:
        for theme in THEMES:
            verdict = check_view(browser, width, theme)
            papers.add(verdict["paper"])
            browser.size(width, verdict["height"])
            browser.picture(f"{pictures}/{width}-{theme}.png")
    if len(papers) != len(THEMES):
        fail(f"light and dark have the same background: {papers}")
    return verdict["seen"]


def check_paper(browser):
    """On paper, the page is light in the dark theme, too."""
    browser.size(WIDTHS[-1], 900)
    inks = []
    for media, theme in (("screen", "light"), ("print", "dark"), ("screen", "dark")):
        browser.call("Emulation.setEmulatedMedia", media=media,
                     features=[{"name": "prefers-color-scheme", "value": theme}])
        inks.append(evaluate(browser, "getComputedStyle(document.body).color"))
    if inks[0] != inks[1] or inks[1] == inks[2]:
        fail(f"text on the light screen, on paper and on the dark screen is {inks}")


def check_without_script(browser, page):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(page)
    if "scripts are switched off" not in evaluate(browser, "document.body.innerText"):
        fail("the page does not say that it needs its script")


def check_expressions(browser, name):
    with open(name, encoding="utf-8") as file:
        expressions = [line.strip() for line in file if line.strip() and not line.startswith("//")]
    for expression in expressions:
        if evaluate(browser, expression) is not True:
            fail(f"is not so in the page: {expression}")


def main():
    name, chromium, pictures, expressions, *files = sys.argv[1:]
    results = []
    for file in files:
        with open(file, encoding="utf-8") as stream:
            results.append(json.load(stream))
    with open(name, encoding="utf-8") as stream:
        check_text(stream.read(), results)
    signal.alarm(BROWSER_SECONDS)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(chromium, os.path.abspath(name), folder)
        try:
            cells = json.loads(evaluate(browser, NUMBERS))
            check_numbers(cells, results)
            check_all_there(cells, results)
            tips = json.loads(evaluate(browser, TIPS))
            if len(results) == 1 and "runs" in results[0]:
                check_tips(Tips(tips), results[0])
            seen = check_look(browser, pictures)
            check_paper(browser)
            check_expressions(browser, expressions)
            check_without_script(browser, os.path.abspath(name))
            if browser.console:
                fail("the console has messages:\n" + "\n".join(browser.console))
        finally:
            browser.close()
    print(f"{len(cells)} numbers, {seen}")


if __name__ == "__main__":
    main()
