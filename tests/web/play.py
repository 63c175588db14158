#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uses the page as a learner does, by keyboard, in a browser without a network: the ten lessons, right and wrong answers, every
collective, every mistake, programs of one's own. Needs Selenium and Chromium; otherwise exits with 77. With a folder, it writes
pictures there.

    tests/web/play.py build-web/exercises.html [--pictures FOLDER]
"""
import argparse
import json
import pathlib
import sys
import time

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "support"))
from browser import Browser, By, exit_with_complaints, expect
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

most_bytes, most_seconds = 4_000_000, 2


class Page(Browser):
    def __init__(self, file, **given):
        super().__init__(**given)
        self.address = pathlib.Path(file).resolve().as_uri()

    def open(self, view=""):
        begin = time.monotonic()
        self.go(self.address + view)
        self.wait_for("document.documentElement.dataset.ready")
        return time.monotonic() - begin

    def choose(self, name, value):
        Select(self.element(name)).select_by_value(value)

    def choices(self, name):
        return [option.get_attribute("value") for option in Select(self.element(name)).options]

    def press(self, *keys):
        self.browser.switch_to.active_element.send_keys(*keys)

    def fill_in(self, cells):
        """Sets the cells of the backward by the keyboard: the first has the focus, arrows move it, and space turns a cell."""
        self.script("document.querySelector('#backward button').focus()")
        for r, row in enumerate(cells):
            for s, on in enumerate(row):
                if on:
                    self.press(Keys.SPACE)
                if s + 1 < len(row):
                    self.press(Keys.ARROW_RIGHT)
            self.press(Keys.ARROW_DOWN, *[Keys.ARROW_LEFT] * (len(row) - 1))

    def predict(self, values):
        inputs = self.browser.find_elements(By.CSS_SELECTOR, "#predictions input")
        for line, value in zip(inputs, values):
            if line.is_enabled():
                line.clear()
                line.send_keys(value)
        self.element("compare").send_keys(Keys.ENTER)
        return [each.text for each in self.browser.find_elements(By.CSS_SELECTOR, "#predictions .outcome")]

    def verdict(self):
        self.element("judge").send_keys(Keys.ENTER)
        return self.element("verdict").text

    def answer(self, **exercise):
        return self.script("return ask(arguments[0])", exercise)


def play_lessons(page, pictures):
    """Every step of every lesson: wrong answers, then the right ones."""
    lessons = json.loads((here.parents[1] / "tools/web/lessons.json").read_text())
    expect(len(lessons) == 10, f"{len(lessons)} lessons")
    for number, lesson in enumerate(lessons, 1):
        if number == 1:
            page.open("#lessons")
            page.element("lesson-list").find_element(By.TAG_NAME, "a").send_keys(Keys.ENTER)
        page.wait_for(f"element('lesson-title').textContent === {json.dumps(f'{number} ' + lesson['title'])}")
        for place, step in enumerate(lesson["steps"]):
            page.wait_for(f"document.querySelectorAll('#steps .step').length === {place + 1}")
            name = f"lesson {number}, step {place + 1}"
            card = page.browser.find_elements(By.CSS_SELECTOR, "#steps .step")[-1]
            kind = play_prediction if "predict" in step else play_writing if "right" in step else play_question
            kind(page, card, step, name)
            if number in (4, 5) and place == 2:
                page.picture(pictures, f"lesson_{number}")
            expect("done" in card.get_attribute("class").split(), f"{name} does not end")
            page.press(Keys.ENTER)  # "next" has the focus
        page.wait_for("document.getElementById('end')")
        page.press(Keys.ENTER)  # the link to the next lesson
    page.wait_for("!element('view-lessons').hidden")  # to which the last lesson leads


def play_prediction(page, card, step, name):
    reply = page.answer(program="\n".join(step["program"]), ranks=step.get("ranks", 1))
    part = step.get("what", "cotangents")
    wanted = [values for named in step["predict"] for each in reply["names"] if each["name"] == named for values in each[part] if values]
    fields = [field for field in card.find_elements(By.TAG_NAME, "input") if field.is_enabled()]
    expect(len(fields) == len(wanted), f"{name}: {len(fields)} fields for {len(wanted)} answers")
    for wrong in (True, False):
        for field, values in zip(fields, wanted):
            field.clear()
            field.send_keys(" ".join(f"{each + 7 * wrong:.8g}" for each in values))
        fields[0].send_keys(Keys.ENTER)
        outcomes = [each.text for each in card.find_elements(By.CSS_SELECTOR, ".outcome") if each.text]
        expect(len(outcomes) == len(wanted) and all(each.startswith("✗ " if wrong else "✓") for each in outcomes), f"{name}: {outcomes}")
        expect(("done" in card.get_attribute("class").split()) != wrong, f"{name} takes a wrong prediction, or refuses the right one")


def play_writing(page, card, step, name):
    field = card.find_element(By.TAG_NAME, "textarea")
    for program, right in ((None, False), ("x = leef 3", False), ("\n".join(step["right"]), True)):
        if program is not None:
            field.clear()
            field.send_keys(program)
        field.send_keys(Keys.CONTROL + Keys.ENTER)
        verdict = card.find_element(By.CSS_SELECTOR, ".verdict").text
        expect(verdict.startswith("Right" if right else ("Not yet: ", "Refused")), f"{name}: {verdict}")


def play_question(page, card, step, name):
    for answer in sorted(step["choose"], key=lambda answer: answer["right"]):
        button = next(each for each in card.find_elements(By.CSS_SELECTOR, ".answers button") if each.text == answer["text"])
        button.send_keys(Keys.ENTER)
        why = card.find_element(By.CSS_SELECTOR, ".why").text
        expect(why == ("✓ " if answer["right"] else "✗ ") + answer["why"], f"{name}: {why}")


def play_programs(page, pictures):
    page.open("#program")
    own = page.element("own-program")
    expect("666" in own.text and "those of the objective" in own.text, f"the first program: {own.text}")
    Select(own.find_element(By.TAG_NAME, "select")).select_by_value("own slot")
    for said in ("not the gradients of the objective", "weft verify calls it S2", "dist.all_gather"):
        expect(said in own.text, f"a broken gather: {own.text}")
    expect(page.browser.find_elements(By.CSS_SELECTOR, ".lanes tr.changed"), "nothing is marked as changed")
    page.picture(pictures, "program")
    address = page.browser.current_url
    page.open("#lessons")
    page.open(address[address.index("#"):])
    expect("all_gather[own slot](x)" in page.element("own-program").find_element(By.TAG_NAME, "textarea").get_attribute("value"), "the address does not keep the program")
    page.open("#contrast")
    expect("0.8" in page.element("contrast-table").text, f"the contrast: {page.element('contrast-table').text}")
    page.picture(pictures, "contrast")


def play(page, file, pictures):
    expect(pathlib.Path(file).stat().st_size <= most_bytes, f"the page has {pathlib.Path(file).stat().st_size} bytes")
    page.open()
    seconds = page.open()
    expect(seconds <= most_seconds, f"the page is ready after {seconds:.1f} s")
    print(f"ready after {seconds:.2f} s")
    play_lessons(page, pictures)
    play_matrix(page, pictures)
    play_programs(page, pictures)
    loaded = page.script("return performance.getEntriesByType('resource').map(each => each.name)")
    expect(not [each for each in loaded if not each.startswith(("data:", "blob:"))], f"the page loads {loaded}")
    page.expect_no_errors()


def play_matrix(page, pictures):
    page.open("#matrix")
    # all_gather of three ranks: only the own slot, then everything.
    outcomes = page.predict(["1", "111", "101"])
    expect(outcomes[0] == "✗ the loss of rank 1 is missing, the loss of rank 2 is missing", f"own slot: {outcomes}")
    expect(outcomes[1] == "✓" and outcomes[2] == "✗ the loss of rank 1 is missing", f"predictions: {outcomes}")
    expect(page.predict(["x", "111 111", "111"])[:2] == ["✗ 1 number is needed"] * 2, "predictions that are no numbers")
    page.fill_in([[r == s for s in range(3)] for r in range(3)])
    text = page.verdict()
    expect(text.startswith("Not the adjoint: own slot") and "S2" in text and "dist.all_gather" in text, f"own slot: {text}")
    page.picture(pictures, "own_slot")
    page.fill_in([[r != s for s in range(3)] for r in range(3)])
    text = page.verdict()
    expect(text.startswith("This is the adjoint"), f"all slots: {text}")
    page.picture(pictures, "adjoint")

    for name in page.choices("collective"):
        for ranks in (1, 3, 5):
            page.open(f"#collective={name}&ranks={ranks}&uneven=true&root={ranks - 1}")
            given = page.answer(collective=name, ranks=ranks, uneven=True, root=ranks - 1,
                                drawn=[[r == s for s in range(ranks)] for r in range(ranks)])
            outcomes = page.predict([" ".join(f"{each:g}" for each in values) for values in given["cotangents"]])
            expect(outcomes == ["✓" if values else "" for values in given["cotangents"]], f"{name} on {ranks} ranks: {outcomes}")
            page.fill_in([[cell is not None for cell in row] for row in given["backward"]])
            text = page.verdict()
            expect(text.startswith("This is the adjoint"), f"{name} on {ranks} ranks: {text}")

    page.open("#collective=all_gather&ranks=5&uneven=true")
    named = set()
    for option in page.choices("mistake")[2:]:
        page.choose("mistake", option)
        text = page.element("verdict").text
        if text.startswith("Not the adjoint: "):
            named.add(option)
            expect(option in text.split("\n")[0], f"{option} is called {text.splitlines()[0]}")
    expect(len(named) >= 12, f"only {len(named)} mistakes are named: {named}")
    print(f"{len(named)} mistakes are named")
    missing = page.script("return mistakes.slice(1).filter(({name}) => !made_by[name]).map(({name}) => name)")
    expect(not missing, f"these are not there in PyTorch: {missing}")

    page.open("#collective=drawn&ranks=3")
    page.picture(pictures, "drawn")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page")
    parser.add_argument("--pictures")
    options = parser.parse_args()
    if options.pictures:
        pathlib.Path(options.pictures).mkdir(exist_ok=True)
    page = Page(options.page)
    play(page, options.page, options.pictures)
    for name, given in (("dark", {"dark": True}), ("narrow", {"width": 400})) if options.pictures else ():
        other = Page(options.page, **given)
        for view in ("lessons", "lesson=5", "matrix", "program", "contrast"):
            other.open("#" + view)
            if view == "matrix":
                other.choose("mistake", "off by a rank")
            other.expect_to_fit(f"{view}, {name}")
            other.picture(options.pictures, f"{view.replace('=', '_')}_{name}")
        other.quit()
    page.quit()
    exit_with_complaints()


if __name__ == "__main__":
    main()
