"""Each page of the console in headless Chromium in three more states: empty, large and broken.

    python console_states.py CONNECTION FOLDER

REQUIRES: the store of the server is empty.
"""

import json
import socket
import sys
import threading
import urllib.request
from pathlib import Path

from selenium.webdriver.common.by import By

# An isolated interpreter does not look into the folder of the program.
sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from console_page import (
    ADDRESS, LOG, MISSING_VALUE, Appends, api, case, fill, find, heading, is_wider_than_the_window, main, open_page,
    picture, said, says, text, until,
)

STREAMS, GROUPS, USERS, EVENTS = 10_000, 10_000, 250, 2_000
# An event has at most 8 MiB with its names.
HUGE = json.dumps({"text": "x" * 8_000_000})
WRITERS = 4
# The most rows that a page may have, and the most bytes of one response, however much is stored.
ROWS_MAX, RESPONSE_BYTES_MAX = 500, 512 << 10
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}


class Page:
    """A page with its address, and what it says in each state."""

    def __init__(self, name, title, empty, large, large_name=None, large_title=None):
        self.name, self.title, self.empty, self.large = name, title, empty, large
        self.large_name, self.large_title = large_name or name, large_title or title


LONG = "many-" + "long" * 60
PAGES = [
    Page("overview", "Overview", "Consumer groups", f"{GROUPS:,}"),
    Page("streams", "Streams", "There are no streams yet: append an event.", "many-"),
    Page("stream/nothing", "nothing", "The stream does not exist.", LONG, f"stream/{LONG}", LONG),
    Page("event/nothing/0", "0 of nothing", "This revision is not in the stream", "only the first 64.0 KiB are shown", "event/huge-1/0", "Huge"),
    Page("search?id=none", "Event with the id none", "No event has this id.", "No event has this id."),
    Page("live", "Live", "Waiting for events.", "many-99999"),
    Page("views", "Views", "There are no categories yet.", "Only the first ones are shown."),
    Page("groups", "Groups", "There are no consumer groups.", f"{GROUPS:,} consumer groups"),
    Page("group/nothing/none", "Page not loaded", "group none on stream nothing does not exist", "Consumers", f"group/many-00000/{'g' * 200}", f"{'g' * 200} on many-00000"),
    Page("store", "Store", "No table was written yet.", "Event log"),
    Page("work", "Work", "No scavenge since the server started.", "Backup directory on the server"),
    Page("users", "Users", "There are no users.", "user-000"),
    Page("user/nobody", "nobody", "There is no user with this name.", "Name and groups", "user/user-001", "user-001"),
    Page("account", "Account", "authenticates no users", "authenticates no users"),
]


def slug(page):
    return page.name.split("/")[0].split("?")[0]


def check_text(browser, page):
    shown = browser.find_element(By.TAG_NAME, "body").text
    assert not MISSING_VALUE.search(shown), f"{page.name}: {shown}"


def check_phone(browser, page):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    try:
        # A plot is drawn again for the new width after a while.
        until(browser, lambda: not is_wider_than_the_window(browser), f"{page.name} fits on a phone")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def show_empty(page):
    def run(browser):
        open_page(browser, page.name, page.title)
        says(browser, page.empty)
        check_text(browser, page)
        picture(browser, f"empty-{slug(page)}")
        check_phone(browser, page)

    return run


def show_large(page):
    def run(browser):
        browser.execute_script("performance.clearResourceTimings()")
        open_page(browser, page.large_name, page.large_title)
        if page.name == "live":
            Appends().append("many-99999", data=json.dumps({"text": "x" * 5_000}))
        says(browser, page.large)
        check_text(browser, page)
        rows = browser.execute_script("return document.querySelectorAll('tbody tr').length")
        assert rows <= ROWS_MAX, f"{page.name}: {rows} rows"
        sizes = browser.execute_script(
            "return performance.getEntriesByType('resource').map(one => [one.decodedBodySize, one.name])")
        assert all(size <= RESPONSE_BYTES_MAX for size, _ in sizes), f"{page.name}: {max(sizes)}"
        picture(browser, f"large-{slug(page)}")
        check_phone(browser, page)

    return run


# Replaces the responses of the server while the session has a kind of fault.
FAULTS = """
const good = window.fetch;
const faults = {
  error: () => new Response(JSON.stringify({ error: "the disk of the store is full: 0 bytes are available" }), { status: 503 }),
  cut: () => new Response('{"stats": {"store": {"logBy', { status: 200 }),
  proxy: () => new Response("<html><body>502 Bad Gateway</body></html>", { status: 502 }),
  gone: () => Promise.reject(new TypeError("Failed to fetch")),
};
window.fetch = (...request) => {
  const fault = faults[sessionStorage.getItem("fault")];
  return fault ? Promise.resolve(fault()) : good(...request);
};
"""
FAULT_TEXTS = {
    "error": "the disk of the store is full", "cut": "The response is cut off",
    "proxy": "The response is not from the server (status 502)", "gone": "cannot be reached",
}


def set_fault(browser, kind):
    browser.execute_script("sessionStorage.setItem('fault', arguments[0])", kind)


def check_outage(browser, kind):
    """A page that fails to be up to date says so, and keeps what it showed."""
    shown = text(browser)
    set_fault(browser, kind)
    outage = lambda: browser.find_element(By.ID, "outage").text
    until(browser, lambda: outage().startswith("Not up to date: ") and FAULT_TEXTS[kind] in outage(), "the outage")
    assert len(text(browser)) >= len(shown) // 2, text(browser)
    set_fault(browser, "")
    until(browser, lambda: outage() == "", "the end of the outage")


def show_broken(page, kind):
    """The page cannot be loaded, is loaded again by its button, and then fails to be up to date."""

    def run(browser):
        open_page(browser, "account", "Account")
        script = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": FAULTS})
        try:
            wanted = FAULT_TEXTS[kind]
            set_fault(browser, kind)
            open_page(browser, page.large_name, "Page not loaded")
            says(browser, wanted)
            check_text(browser, page)
            picture(browser, f"broken-{slug(page)}")
            check_phone(browser, page)
            set_fault(browser, "")
            find(browser, "Try again").click()
            until(browser, lambda: heading(browser) == page.large_title, f"{page.name} again")
            # Story: an operator who first met an outage had no links and buttons of an operator.
            assert find(browser, "Users").is_displayed()
            if slug(page) in REPEATED:
                check_outage(browser, kind)
        finally:
            set_fault(browser, "")
            browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)

    return run


# Pages that request their data again and again.
REPEATED = {"overview", "live", "groups", "group", "store", "work"}


def add_case(state, page, function):
    function.__name__ = f"show_the_{state}_page_{slug(page)}"
    case(function)


def in_threads(count, work):
    """Runs `work(appends, number)` for each number, in several threads with a connection each."""
    failures = []

    def run(first):
        appends = Appends()
        try:
            for number in range(first, count, WRITERS):
                work(appends, number)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(first,)) for first in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def fill_the_store(browser):
    in_threads(STREAMS, lambda appends, number: appends.append(f"many{number % 700}-{number:05}", f"Type{number % 700}"))
    in_threads(EVENTS, lambda appends, number: appends.append(LONG, "T" * 200, json.dumps({"n": number})))
    for number in range(3):
        Appends().append(f"many-0000{number}")
    headers = {"content-type": "application/json", "kurrent-eventtype": "Huge"}
    request = urllib.request.Request(f"{ADDRESS}/streams/huge-1", HUGE.encode(), headers)
    urllib.request.urlopen(request).close()

    def create_group(appends, number):
        name = "g" * 200 if number == 0 else f"group-{number}"
        appends.post("change-group", {"do": "create", "source": f"many-{number:05}", "group": name, "settings": {}})

    in_threads(GROUPS, create_group)

    def create_user(appends, number):
        fields = {"login": f"user-{number:03}", "fullName": "A long name " * 8, "password": "secret", "groups": ["$ops"]}
        appends.post("user", {"do": "create", **fields})

    in_threads(USERS, create_user)
    assert api("groups")["total"] == GROUPS


for each in PAGES:
    add_case("empty", each, show_empty(each))
case(fill_the_store)
for each in PAGES:
    add_case("large", each, show_large(each))
for at, each in enumerate(PAGES):
    if slug(each) != "account":
        kind = list(FAULT_TEXTS)[at % len(FAULT_TEXTS)]
        add_case("broken", each, show_broken(each, kind))


@case
def download_the_largest_event_whole(browser):
    open_page(browser, "event/huge-1/0", "Huge")
    size = browser.execute_async_script(
        "const done = arguments[0];"
        "const link = [...document.querySelectorAll('a')].find(one => one.textContent === 'Download');"
        "fetch(link.href).then(one => one.arrayBuffer()).then(all => done(all.byteLength));")
    assert size == len(HUGE), size


@case
def page_through_all_groups_and_find_the_last(browser):
    open_page(browser, f"groups?skip={GROUPS - 1}", "Groups")
    until(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, "tbody tr")) == 1, "the last group")
    open_page(browser, f"groups?search=group-{GROUPS - 1}", "Groups")
    says(browser, "1 consumer group")


@case
def find_a_stream_among_many_by_a_part_of_its_name(browser):
    open_page(browser, f"streams?contains=-{STREAMS - 1:05}", "Streams")
    says(browser, f"-{STREAMS - 1:05}")
    assert len(browser.find_elements(By.CSS_SELECTOR, "tbody tr")) == 1


@case
def page_through_many_users(browser):
    open_page(browser, "users", "Users")
    seen = set()
    while True:
        cells = browser.execute_script(
            "return [...document.querySelectorAll('main tbody tr')].map(row => row.cells[0].textContent)")
        assert cells and not seen.intersection(cells), cells
        seen.update(cells)
        more = browser.find_elements(By.LINK_TEXT, "More")
        if not more:
            break
        more[0].click()
        until(browser, lambda: cells[0] not in text(browser), "the next users")
    assert len(seen) == USERS, len(seen)


@case
def let_two_operators_change_the_same_group(browser):
    """Story: the form has all settings, so that a second operator took back what the first one had changed."""
    open_page(browser, "group/many-00001/group-1", "group-1 on many-00001")
    settings = lambda: api("group?source=many-00001&group=group-1")["settings"]
    find(browser, "Change the settings").click()
    fill(browser, {"g-readBatchSize": "11"})
    first = {**settings(), "startFrom": "end", "maxRetryCount": 22}
    Appends().post("change-group", {"do": "update", "source": "many-00001", "group": "group-1", "settings": first})
    change = lambda: browser.find_element(By.XPATH, "//button[text()='Change']").click()
    change()
    until(browser, lambda: "maxRetryCount is 22 now, and was 10" in said(browser), "the reason")
    assert settings()["readBatchSize"] == 20
    open_page(browser, "group/many-00001/group-1", "group-1 on many-00001")
    find(browser, "Change the settings").click()
    fill(browser, {"g-readBatchSize": "11"})
    change()
    until(browser, lambda: "Changed" in said(browser), "the change")
    assert (settings()["maxRetryCount"], settings()["readBatchSize"]) == (22, 11)


@case
def say_that_a_group_is_gone(browser):
    open_page(browser, "group/many-00002/group-2", "group-2 on many-00002")
    Appends().post("change-group", {"do": "delete", "source": "many-00002", "group": "group-2"})
    outage = lambda: browser.find_element(By.ID, "outage").text
    until(browser, lambda: "group-2 on stream many-00002 does not exist" in outage(), "that the group is gone")


@case
def take_no_half_of_a_form(browser):
    """A script that posts half a body changes nothing and keeps no connection."""
    host, port = ADDRESS.split("://")[1].split(":")
    head = f"POST /console/api/append HTTP/1.1\r\nHost: {host}:{port}\r\nx-umbel-console: 1\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n"
    half = socket.create_connection((host, int(port)))
    half.sendall(head.encode() + b'{"stream": "half-1", "type": "Half", "da')
    half.shutdown(socket.SHUT_WR)
    half.settimeout(60)
    half.recv(4096)
    half.close()
    open_page(browser, "stream/half-1", "half-1")
    says(browser, "The stream does not exist.")


@case
def log_no_unexpected_errors(browser):
    kept = [line for line in LOG if line["level"] == "SEVERE" and "status of 40" not in line["message"]]
    assert kept == [], kept


sys.exit(main())
