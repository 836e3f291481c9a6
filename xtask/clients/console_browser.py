"""The console in headless Chromium.

    python console_browser.py CONNECTION FOLDER

CONNECTION is the connection string of a server, FOLDER gets a screenshot of each page. REQUIRES:
python_parked.py has appended and parked events. Each case prints a line; the last line counts
passed, failed and skipped cases.
"""

import shutil
import sys
import traceback
from pathlib import Path

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

CONNECTION, FOLDER = sys.argv[1], Path(sys.argv[2])
ADDRESS = "http://" + CONNECTION.split("://")[1].split("?")[0]
CASES = []


def case(function):
    CASES.append(function)
    return function


def start():
    options = webdriver.ChromeOptions()
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "window-size=1280,900"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # With explicit paths Selenium downloads nothing.
    options.binary_location = shutil.which("chromium")
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def until(browser, is_so, what):
    # An element may be stale: the page renders again.
    wait = WebDriverWait(browser, 20, ignored_exceptions=[StaleElementReferenceException])
    wait.until(lambda _: is_so(), f"never: {what}")


def text(browser):
    return browser.find_element(By.ID, "main").text


def open_page(browser, page, title):
    browser.get(f"{ADDRESS}/console/#/{page}")
    browser.refresh()
    heading = lambda: browser.find_elements(By.CSS_SELECTOR, "main h1")
    until(browser, lambda: heading() and heading()[0].text == title, f"the page {title}")


def says(browser, wanted):
    until(browser, lambda: wanted in text(browser), wanted)


def picture(browser, name):
    FOLDER.mkdir(parents=True, exist_ok=True)
    browser.save_screenshot(str(FOLDER / f"{name}.png"))


def find(browser, text_of):
    return browser.find_element(By.XPATH, f"//*[self::button or self::a or self::summary][text()='{text_of}']")


def is_wider_than_the_window(browser):
    return browser.execute_script("return document.documentElement.scrollWidth > innerWidth")


@case
def append_an_event_and_browse_it(browser):
    open_page(browser, "streams", "Streams")
    find(browser, "Append an event").click()
    browser.find_element(By.ID, "a-stream").send_keys("till-1")
    browser.find_element(By.ID, "a-type").send_keys("Paid")
    data = browser.find_element(By.ID, "a-data")
    data.clear()
    data.send_keys('{"amount": 12, "note": "<script>document.title=1</script>"}')
    picture(browser, "append")
    data.submit()
    heading = lambda: browser.find_element(By.CSS_SELECTOR, "main h1").text
    until(browser, lambda: heading() == "till-1", "the stream")
    find(browser, "Paid").click()
    says(browser, '"amount": 12')
    says(browser, "<script>document.title=1</script>")
    assert browser.title == "till-1 – Umbel", browser.title
    picture(browser, "event")


@case
def names_that_are_no_pages_show_the_streams(browser):
    for name in ("__proto__", "constructor", "toString", "nothing"):
        open_page(browser, name, "Streams")


@case
def see_the_error_of_an_append(browser):
    open_page(browser, "stream/till-1", "till-1")
    find(browser, "Append an event").click()
    browser.find_element(By.ID, "a-type").send_keys("Paid")
    data = browser.find_element(By.ID, "a-data")
    data.clear()
    data.send_keys("{")
    data.submit()
    said = lambda: browser.find_element(By.ID, "said").text
    until(browser, lambda: "not valid JSON" in said(), "what is wrong")


@case
def see_the_events_of_a_client(browser):
    open_page(browser, "streams", "Streams")
    search = browser.find_element(By.ID, "search")
    search.send_keys("parked-", Keys.ENTER)
    until(browser, lambda: "till-1" not in text(browser) and "parked-1" in text(browser), "the stream")
    picture(browser, "streams")
    find(browser, "parked-1").click()
    says(browser, "Counted")
    assert len(browser.find_elements(By.CSS_SELECTOR, "tbody tr")) == 5


@case
def watch_live_events(browser):
    open_page(browser, "live", "Live")
    browser.execute_async_script(
        "const done = arguments[0];"
        "const headers = { 'content-type': 'application/json', 'x-umbel-console': '1' };"
        "const body = JSON.stringify({ stream: 'cart-9', type: 'Live', data: '{}' });"
        "fetch('/console/api/append', { method: 'POST', headers, body }).then(done);"
    )
    says(browser, "cart-9")
    says(browser, "1 events since")
    picture(browser, "live")


@case
def browse_categories_and_types(browser):
    open_page(browser, "views", "Views")
    says(browser, "Paid")
    picture(browser, "views")
    find(browser, "till").click()
    says(browser, "Paid")


@case
def replay_parked_events(browser):
    open_page(browser, "groups", "Groups")
    says(browser, "parked-1")
    picture(browser, "groups")
    replay = browser.find_element(By.XPATH, "//button[text()='Replay']")
    replay.click()
    gone = lambda: not browser.find_elements(By.XPATH, "//button[text()='Replay']")
    said = lambda: browser.find_element(By.ID, "said").text
    until(browser, lambda: "sent again" in said() or gone(), "that they are sent again")


@case
def see_levels_filters_and_plots(browser):
    open_page(browser, "store", "Store")
    until(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "svg .plot"), "a plot")
    says(browser, "Event log")
    # Until the index is flushed for the first time there is no table.
    levels = ("Filters in memory", "No table was written yet.")
    until(browser, lambda: any(said in text(browser) for said in levels), "levels")
    says(browser, "Filters chosen by the advisor, and why")
    picture(browser, "store")


@case
def scavenge_and_back_up(browser):
    open_page(browser, "work", "Work")
    find(browser, "Start a scavenge").click()
    says(browser, "Done:")
    browser.execute_script("document.activeElement.blur()")
    find(browser, "Remove all now").click()
    browser.execute_script("document.activeElement.blur()")
    says(browser, "No file of the store has data of hidden events")
    find(browser, "Back up now").click()
    browser.execute_script("document.activeElement.blur()")
    says(browser, "through position")
    picture(browser, "work")


@case
def add_and_refuse_a_user(browser):
    open_page(browser, "users", "Users")
    find(browser, "Add a user").click()
    for name, value in (("u-login", "ada"), ("u-password", "secret"), ("u-groups", "$ops, readers")):
        browser.find_element(By.ID, name).send_keys(value)
    find(browser, "Add").click()
    says(browser, "$ops, readers")
    browser.find_element(By.CSS_SELECTOR, "[aria-label='Disable ada']").click()
    says(browser, "disabled")
    picture(browser, "users")


@case
def switch_to_dark_and_keep_it(browser):
    open_page(browser, "streams", "Streams")
    color = lambda: browser.execute_script("return getComputedStyle(document.body.parentElement).backgroundColor")
    light = color()
    browser.find_element(By.ID, "theme").click()
    assert color() != light
    browser.refresh()
    says(browser, "till-1")
    assert color() != light, "it is forgotten"
    open_page(browser, "store", "Store")
    until(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "svg .plot"), "a plot")
    picture(browser, "dark")
    browser.find_element(By.ID, "theme").click()
    assert color() == light


@case
def fit_on_a_phone(browser):
    # A window of a browser has a least width; a page of a device has not.
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    titles = {"streams": "Streams", "live": "Live", "views": "Views", "groups": "Groups", "store": "Store",
              "work": "Work", "users": "Users", "stream/till-1": "till-1"}
    for page, title in titles.items():
        open_page(browser, page, title)
        assert not is_wider_than_the_window(browser), page
    picture(browser, "phone-stream")
    open_page(browser, "store", "Store")
    until(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "svg .plot"), "a plot")
    picture(browser, "phone-store")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@case
def work_by_keyboard_alone(browser):
    open_page(browser, "streams", "Streams")
    browser.execute_script("document.activeElement.blur(); window.focus()")
    reached = []
    for _ in range(14):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        element = browser.switch_to.active_element
        reached.append(element.text or element.get_attribute("id"))
    for wanted in ("Streams", "Live", "search", "Search", "Append an event"):
        assert wanted in reached, f"{wanted} is not among {reached}"
    find(browser, "Append an event").send_keys(Keys.ENTER)
    assert browser.find_element(By.ID, "a-stream").is_displayed()


@case
def have_names_and_roles_for_screen_readers(browser):
    for page, title in (("streams", "Streams"), ("groups", "Groups"), ("store", "Store"), ("users", "Users")):
        open_page(browser, page, title)
        nameless = browser.execute_script(
            "return [...document.querySelectorAll('input, select, textarea, button')].filter(one =>"
            " !(one.labels?.length || one.getAttribute('aria-label') || one.textContent.trim())).map(one => one.outerHTML)"
        )
        assert nameless == [], f"{page}: {nameless}"
        assert browser.execute_script("return document.documentElement.lang") == "en"
        assert len(browser.find_elements(By.TAG_NAME, "h1")) == 1
    assert browser.find_element(By.ID, "said").get_attribute("aria-live") == "polite"


@case
def find_streams_after_system_streams_and_keep_long_numbers(browser):
    open_page(browser, "streams", "Streams")
    browser.execute_async_script(
        "const done = arguments[0];"
        "const headers = { 'content-type': 'application/json', 'x-umbel-console': '1' };"
        "const append = (stream, data) => fetch('/console/api/append',"
        "  { method: 'POST', headers, body: JSON.stringify({ stream, type: 'Many', data }) });"
        "(async () => {"
        "  for (let number = 0; number < 210; number++) await append(`$s-${number}`, '{}');"
        "  await append('long-1', '{\"id\":12345678901234567890,\"x\":[1.0,{}]}');"
        "})().then(done);"
    )
    open_page(browser, "streams", "Streams")
    says(browser, "long-1")
    assert "$s-1" not in text(browser)
    open_page(browser, "stream/long-1", "long-1")
    find(browser, "Many").click()
    says(browser, '"id": 12345678901234567890,')
    says(browser, '1.0,')


@case
def log_no_errors(browser):
    kept = [line for line in LOG if line["level"] == "SEVERE" and "400" not in line["message"]]
    assert kept == [], kept


LOG = []


def main():
    passed = failed = 0
    browser = start()
    for function in CASES:
        name = "Browser: " + function.__name__.replace("_", " ")
        try:
            function(browser)
        except Exception:
            failed += 1
            print(f"FAILED {name}")
            traceback.print_exc(file=sys.stdout)
        else:
            passed += 1
            print(f"ok {name}")
        LOG.extend(browser.get_log("browser"))
    browser.quit()
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


sys.exit(main())
