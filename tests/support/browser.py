# SPDX-License-Identifier: Apache-2.0
"""Chromium without a network, for tests of pages that open from a file. Exits with 77 where Selenium or Chromium is missing."""
import base64
import pathlib
import shutil
import sys
import time

try:
    from selenium import webdriver
    from selenium.webdriver.common.by import By
except ImportError:
    sys.exit(77)

complaints = []


def expect(holds, what):
    if not holds:
        complaints.append(what)


def exit_with_complaints():
    for complaint in complaints:
        print("wrong:", complaint)
    sys.exit(1 if complaints else 0)


class Browser:
    """`downloads` is the folder for files that a page saves."""

    def __init__(self, width=1200, dark=False, downloads=None):
        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", f"--window-size={width},1400", "--host-resolver-rules=MAP * ~NOTFOUND"):
            options.add_argument(argument)
        if downloads:
            options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = shutil.which("chromedriver")  # else Selenium looks for one on the network
        try:
            self.browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver) if driver else None)
        except Exception as error:  # Selenium's are many
            print(f"no browser: {error}".splitlines()[0])
            sys.exit(77)
        if dark:
            self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        if width < 500:
            self.command("Emulation.setDeviceMetricsOverride", width=width, height=1400, deviceScaleFactor=1, mobile=True)

    def command(self, name, **arguments):
        return self.browser.execute_cdp_cmd(name, arguments)

    def script(self, text, *arguments):
        return self.browser.execute_script(text, *arguments)

    def element(self, name):
        return self.browser.find_element(By.ID, name)

    def go(self, address):
        self.browser.get("about:blank")  # else an address that differs after # alone loads nothing
        self.browser.get(address)

    def wait_for(self, condition):
        begin = time.monotonic()
        while not self.script("return " + condition):
            if time.monotonic() - begin > 30:
                sys.exit(f"this does not become true: {condition}, {self.browser.get_log('browser')}")
            time.sleep(0.01)

    def expect_to_fit(self, name):
        expect(self.script("return document.documentElement.scrollWidth <= window.innerWidth"), f"{name}: wider than the window")

    def expect_no_errors(self):
        errors = [each for each in self.browser.get_log("browser") if each["level"] == "SEVERE"]
        expect(not errors, f"errors: {errors}")

    def picture(self, folder, name):
        """The whole page, if there is a folder for it."""
        if not folder:
            return
        height, width = self.script("return [document.documentElement.scrollHeight, window.innerWidth]")
        shot = self.command("Page.captureScreenshot", captureBeyondViewport=True, clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1})
        pathlib.Path(folder, f"{name}.png").write_bytes(base64.b64decode(shot["data"]))

    def quit(self):
        self.browser.quit()
