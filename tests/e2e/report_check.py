#!/usr/bin/env python3
"""Checks a page of --report: against the JSON of the same run, and in a browser.

usage: report_check.py PAGE JSON                      the numbers, and that the SVG is XML
       report_check.py PAGE JSON CHROMIUM FOLDER      the same, and how the page looks on a phone and on
                                                      a desk, light and dark; leaves pictures in FOLDER
"""
import base64
import fcntl
import html
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

BROWSER_SECONDS = 600
WIDTHS = (390, 1280)
THEMES = ("light", "dark")

# Runs in the page. The verdict is a list of what is wrong, and some counts.
CHECK = """
const wrong = [], seen = {texts: 0, marks: 0, charts: 0, width: innerWidth};
const page = document.documentElement;
if (page.scrollWidth > innerWidth) wrong.push(`the page is ${page.scrollWidth} pixels wide`);
const apart = (a, b) => a.right <= b.left + 0.5 || b.right <= a.left + 0.5 ||
                        a.bottom <= b.top + 0.5 || b.bottom <= a.top + 0.5;
for (const svg of document.querySelectorAll('svg')) {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].map(
      t => ({text: t.textContent, box: t.getBoundingClientRect()}));
  seen.charts++;
  seen.texts += texts.length;
  for (const t of texts) {
    if (t.box.left < frame.left - 1 || t.box.right > frame.right + 1 || t.box.top < frame.top - 1 ||
        t.box.bottom > frame.bottom + 1)
      wrong.push(`'${t.text}' is outside of its chart, ${svg.getAttribute('aria-label')}`);
    if (t.box.height < 10) wrong.push(`'${t.text}' is only ${t.box.height} pixels high`);
  }
  for (let i = 0; i < texts.length; i++)
    for (let k = 0; k < i; k++)
      if (!apart(texts[i].box, texts[k].box))
        wrong.push(`'${texts[k].text}' and '${texts[i].text}' overlap in a chart, ` +
                   svg.getAttribute('aria-label'));
}
for (const mark of document.querySelectorAll('[data-tip]')) {
  seen.marks++;
  const tip = document.getElementById('tip');
  mark.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: 9, clientY: 9}));
  if (tip.hidden || !tip.textContent || tip.textContent != mark.dataset.tip)
    wrong.push(`no value is shown under the pointer for ${mark.dataset.tip}`);
}
document.getElementById('tip').hidden = true;
JSON.stringify({wrong: wrong.slice(0, 20), seen: seen, height: page.scrollHeight,
                paper: getComputedStyle(document.body).backgroundColor});
"""


def fail(message):
    print(message, file=sys.stderr)
    sys.exit(1)


def find(results, path):
    """The value at a path such as 0/runs/3/ops_per_s. The page has an array of results."""
    at = [results]
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


def check_numbers(page, results):
    cells = re.findall(r'<td data-json="([^"]+)" data-value="([^"]+)">([^<]*)</td>', page)
    for path, value, text in cells:
        expected = find(results, html.unescape(path))
        if not close(float(value), expected, 1e-8) or not close(shown(text), expected, 0.006):
            fail(f"{path} is {expected}, but the page has {value} and shows {text}")
    return len(cells)


def check_svg(page):
    charts = re.findall(r"<svg.*?</svg>", page, re.S)
    for chart in charts:
        try:
            xml.fromstring(chart)
        except xml.ParseError as error:
            fail(f"a chart is not XML: {error}\n{chart[:2000]}")
    return len(charts)


def check_alone(page):
    """Nothing is loaded from elsewhere."""
    for attribute, value in re.findall(r'\b(src|href)="([^"]*)"', page):
        if not value.startswith(("#", "data:")):
            fail(f'{attribute}="{value}" is not in the page')
    if re.search(r"@import|url\(", page):
        fail("the style loads something")


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


def check_view(browser, width, theme):
    """Checks the page at this width and in this theme. Returns the verdict."""
    browser.size(width, 900)
    browser.call("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": theme}])
    answer = browser.call("Runtime.evaluate", expression="{" + CHECK + "}")
    if "exceptionDetails" in answer:
        fail(f"the check failed: {answer['exceptionDetails']}")
    verdict = json.loads(answer["result"]["value"])
    seen = verdict["seen"]
    if verdict["wrong"]:
        fail(f"at {width} pixels, {theme}:\n" + "\n".join(verdict["wrong"]))
    if seen["width"] != width:
        fail(f"the page is {seen['width']} pixels wide, but the window has {width}")
    if min(seen["charts"], seen["texts"], seen["marks"]) == 0:
        fail(f"there is nothing to see: {seen}")
    return verdict


def check_look(chromium, page, pictures):
    signal.alarm(BROWSER_SECONDS)
    papers = set()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(chromium, os.path.abspath(page), folder)
        for width in WIDTHS:
            for theme in THEMES:
                verdict = check_view(browser, width, theme)
                papers.add(verdict["paper"])
                browser.size(width, verdict["height"])
                browser.picture(f"{pictures}/{width}-{theme}.png")
        console = browser.console
        browser.close()
    if console:
        fail("the console has messages:\n" + "\n".join(console))
    if len(papers) != len(THEMES):
        fail(f"light and dark have the same background: {papers}")
    print(verdict["seen"])


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        page = file.read()
    with open(sys.argv[2], encoding="utf-8") as file:
        results = json.load(file)
    check_alone(page)
    charts, numbers = check_svg(page), check_numbers(page, results)
    if charts == 0 or numbers == 0:
        fail(f"the page has {charts} charts and {numbers} numbers")
    print(f"{charts} charts, {numbers} numbers")
    if len(sys.argv) == 5:
        check_look(sys.argv[3], sys.argv[1], sys.argv[4])


if __name__ == "__main__":
    main()
