"""Checks the site in headless Chromium: ./run docs --check.

Opens every page at a phone's width and looks at links, pictures, overflow and copy buttons, and
asks the search for names.  Pages come from a server of this program, on a free port.
"""
import functools
import html
import http.server
import json
import re
import subprocess
import tempfile
import threading
from pathlib import Path
from shutil import which
from urllib.parse import quote, unquote, urldefrag, urljoin

WIDTH = 390                             # of a phone, in pixels
SEARCHES = {"wb_conv": "reference/ops.html", "wb_train": "reference/train.html",
            "dataloader": "reference/data.html", "scopes": "guide/tensors.html",
            "missing values": "guide/table.html", "read csv": "guide/table.html",
            "one hot": "guide/table.html", "standardize": "guide/table.html",
            "normalisation": "guide/table.html", "R2": "guide/table.html",
            "confusion matrix": "guide/table.html", "regression": "guide/training.html",
            "early stopping": "guide/training.html", "float64": "guide/tensors.html",
            "thread safe": "guide/performance.html", "memory leak": "guide/debugging.html",
            "save model": "guide/files.html", "load_state_dict": "from_pytorch.html",
           **{word: "tasks.html" for word in (
               "copy weights", "target network", "polyak", "dqn", "replay buffer", "gather",
               "index_add", "scatter_reduce", "argmax", "nan_to_num", "masked mean",
               "class weights", "sample weights", "quantile loss", "segmentation",
               "graph networks")}}
# Loads each page of the list in a frame of a phone's width, and writes what it finds as JSON.
PROBE = """<!doctype html><title>probe</title><iframe id="frame" style="border:0"></iframe>
<pre id="found"></pre><script>
const pages = PAGES, found = {};
const frame = document.getElementById("frame");
frame.width = WIDTH; frame.height = 800;
const wait = ms => new Promise(done => setTimeout(done, ms));
async function look(page) {
    await new Promise(done => { frame.onload = done; frame.src = page; });
    const inside = frame.contentDocument, root = inside.documentElement;
    const blocks = inside.querySelectorAll("div:not(.output) > div.highlight > pre");
    const buttons = () => inside.querySelectorAll("button.copybtn");
    for (const image of inside.images) {
        image.loading = "eager";
        await image.decode().catch(() => 0);
    }
    for (let i = 0; i < 40 && buttons().length < blocks.length; i++) await wait(50);
    const text = buttons()[0];
    let copied = null;
    if (text) {
        const block = inside.querySelector(text.dataset.clipboardTarget);
        const clipboard = frame.contentWindow.navigator.clipboard;
        if (clipboard)
            clipboard.writeText = x => { copied = x; return Promise.resolve(); };
        inside.execCommand = () => {
            copied = String(inside.activeElement.value || inside.getSelection());
            return true;
        };
        text.click();
        for (let i = 0; i < 20 && !copied; i++) await wait(25);
        copied = copied !== null && block && copied.trim() === block.innerText.trim();
    }
    found[page] = {
        width: root.scrollWidth,
        wide: [...inside.querySelectorAll("article *")].filter(x => {
            const box = x.getBoundingClientRect();
            if (box.right <= root.clientWidth + 1) return false;
            for (let at = x.parentElement; at.tagName !== "ARTICLE"; at = at.parentElement)
                if (frame.contentWindow.getComputedStyle(at).overflowX !== "visible") return false;
            return true;
        }).slice(0, 3).map(x => x.outerHTML.slice(0, 120)),
        broken: [...inside.images].filter(x => !x.naturalWidth).map(x => x.src),
        images: inside.images.length,
        blocks: blocks.length,
        buttons: buttons().length,
        copied: copied,
    };
}
(async () => {
    for (const page of pages) await look(page);
    document.getElementById("found").textContent = JSON.stringify(found);
    document.title = "done";
})();
</script>"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def browse(url, seconds=120):
    """The text of a page after its scripts have run."""
    name = next(filter(None, map(which, ("chromium", "chromium-browser", "google-chrome"))))
    with tempfile.TemporaryDirectory() as profile:
        command = [name, "--headless", "--no-sandbox", "--disable-gpu",
                   f"--user-data-dir={profile}", f"--virtual-time-budget={seconds * 1000}",
                   "--dump-dom", url]
        return subprocess.run(command, capture_output=True, text=True, check=False,
                              timeout=300).stdout


def links(site, pages):
    """A list of the links that lead nowhere; links to other sites are not followed."""
    anchors, found = {}, []
    texts = {page: (site / page).read_text() for page in pages}
    for page, text in texts.items():
        anchors[page] = set(re.findall(r'\bid="([^"]+)"', text))
    for page, text in texts.items():
        for target in re.findall(r'<a [^>]*href="([^"]+)"', text):
            target = html.unescape(target)
            if re.match(r"\w+:", target):
                continue
            path, anchor = urldefrag(urljoin(f"/{page}", target))
            path = unquote(path).lstrip("/") or "index.html"
            if not (site / path).is_file():
                found.append(f"{page}: {target} does not exist")
            elif anchor and path in anchors and unquote(anchor) not in anchors[path]:
                found.append(f"{page}: {target} has no such anchor")
    return found


def check(site):
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html")
                   if not re.search(r"/_static/|^_static/|^_sources/", path.as_posix()))
    found = links(site, pages)
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    at = f"http://127.0.0.1:{server.server_port}"
    looked = [page for page in pages if page not in ("search.html", "genindex.html")]
    probe = site / "_probe.html"
    seen = {}
    try:
        for i in range(0, len(looked), 12):
            part = looked[i:i + 12]
            probe.write_text(PROBE.replace("PAGES", json.dumps(part)).replace("WIDTH", str(WIDTH)))
            text = re.search(r'<pre id="found">(.*?)</pre>', browse(f"{at}/_probe.html"), re.S)
            seen.update(json.loads(html.unescape(text.group(1)) or "{}"))
        for page in looked:
            state = seen.get(page)
            if state is None:
                found.append(f"{page}: was not looked at")
                continue
            if state["width"] > WIDTH or state["wide"]:
                found.append(f"{page}: {state['width']} pixels wide at {WIDTH}: {state['wide']}")
            found += [f"{page}: {image} does not load" for image in state["broken"]]
            if state["buttons"] < state["blocks"]:
                found.append(f"{page}: {state['blocks']} blocks of code, "
                             f"{state['buttons']} buttons to copy them")
            if state["buttons"] and not state["copied"]:
                found.append(f"{page}: a click on the button copies something else")
        for word, page in SEARCHES.items():
            results = browse(f"{at}/search.html?q={quote(word)}", 20)
            listed = re.findall(r'<li[^>]*>\s*<a href="([^"]+)"', results)
            if not any(target.startswith(page) for target in listed[:8]):
                found.append(f"search: {word} does not find {page}: {listed[:5]}")
    finally:
        probe.unlink(missing_ok=True)
        server.shutdown()
    for line in found:
        print(line)
    print(f"{len(looked)} pages at {WIDTH} pixels, {sum(x['images'] for x in seen.values())} "
          f"pictures, {sum(x['blocks'] for x in seen.values())} blocks of code, "
          f"{len(SEARCHES)} searches: {len(found)} findings")
    return not found


if __name__ == "__main__":
    raise SystemExit(not check(Path(__file__).resolve().parent.parent / "build/docs"))
