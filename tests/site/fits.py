#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens the pages of the documents in windows of many widths: none may be wider than its window. Needs Selenium and Chromium;
otherwise exits with 77.

    tests/site/fits.py FOLDER     which tools/site/build has made
"""
import pathlib
import sys

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "tests/support"))
from browser import Browser, exit_with_complaints

# A telephone, a tablet, and those around the widths at which the theme shows one sidebar and two.
widths = (360, 800, 1071, 1073, 1170, 1311, 1313, 1366, 1410)

site = pathlib.Path(sys.argv[1]).resolve()
browser = Browser()
for page in sorted([site / "README.html", *site.glob("docs/*.html")]):
    browser.go(page.as_uri())
    for width in widths:
        browser.command("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)
        browser.expect_to_fit(f"{page.relative_to(site)}, {width} pixels")
browser.quit()
exit_with_complaints()
