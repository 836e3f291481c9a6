"""The parts that all tests of the console in headless Chromium share.

A program has the arguments CONNECTION FOLDER: CONNECTION is the connection string of a server,
FOLDER gets the screenshots. Each case prints a line; the last line counts passed, failed and
skipped cases.
"""

import http.client
import json
import re
import shutil
import sys
import urllib.request
from pathlib import Path

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from case_list import CaseList

CONNECTION, FOLDER = sys.argv[1], Path(sys.argv[2])
ADDRESS = "http://" + CONNECTION.split("://")[1].split("?")[0]
case = CaseList("Browser")


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


class Appends:
    """Appends over one connection, without the browser."""

    def __init__(self):
        self.connection = http.client.HTTPConnection(ADDRESS.split("://")[1])

    def append(self, stream, kind="Live", data="{}", **fields):
        return self.post("append", {"stream": stream, "type": kind, "data": data, **fields})

    def post(self, action, fields):
        headers = {"content-type": "application/json", "x-umbel-console": "1"}
        self.connection.request("POST", f"/console/api/{action}", json.dumps(fields), headers)
        answer = self.connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text
        return json.loads(text)


def api(path):
    with urllib.request.urlopen(f"{ADDRESS}/console/api/{path}") as answer:
        return json.load(answer)


def heading(browser):
    return browser.find_element(By.CSS_SELECTOR, "main h1").text


def said(browser):
    return browser.find_element(By.ID, "said").text


def fill(browser, values):
    for name, value in values.items():
        field = browser.find_element(By.ID, name)
        field.clear()
        field.send_keys(value)


# What a page shows for a value that it does not have.
MISSING_VALUE = re.compile(r"\b(null|undefined|NaN|Infinity|Invalid Date)|\[object")

LOG = []


def main():
    browser = start()
    outcome = case.run(browser, after=lambda: LOG.extend(browser.get_log("browser")))
    browser.quit()
    return outcome
