"""The policy in the page: what the page does not need is forbidden, also to text that would become part of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from geoattn.report.page import write_report
from tests.report.test_browser import Page, driver, pytestmark  # noqa: F401

#: Each would leave a mark, or a complaint that names the directive that forbids it.
ATTEMPTS = {
    "script-src": "const s = document.createElement('script'); s.textContent = 'window.owned = 1';"
    " document.body.append(s)",
    "script-src-attr": "document.body.insertAdjacentHTML('beforeend', '<p onclick=\"window.owned = 2\" id=evil>x</p>');"
    " document.getElementById('evil').click()",
    "connect-src": "fetch('https://example.com/').catch(() => {})",
    "img-src": "new Image().src = 'https://example.com/a.png'",
    "frame-src": "document.body.insertAdjacentHTML('beforeend', '<iframe src=\"https://example.com/\"></iframe>')",
    "base-uri": "document.head.insertAdjacentHTML('beforeend', '<base href=\"https://example.com/\">')",
    "form-action": "document.body.insertAdjacentHTML('beforeend',"
    " '<form action=\"https://example.com/\" id=form></form>'); document.getElementById('form').submit()",
    "font-src": "new FontFace('a', 'url(https://example.com/a.woff)').load().catch(() => {})",
    "object-src": "document.body.insertAdjacentHTML('beforeend', '<object data=\"https://example.com/a\"></object>')",
    "worker-src": "try { new Worker('https://example.com/a.js') } catch (e) { console.error('worker-src') }",
}


def reached(driver: Any) -> list[str]:  # noqa: F811
    """Requests to another host that the policy did not stop; the browser notes those that it stopped, too."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    stopped = {
        e["params"]["requestId"]
        for e in events
        if e["method"] == "Network.loadingFailed" and e["params"].get("blockedReason") == "csp"
    }
    sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return [p["request"]["url"] for p in sent if "example.com" in p["request"]["url"] and p["requestId"] not in stopped]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, digits: Any) -> Path:
    made = tmp_path_factory.mktemp("policy") / "report.html"
    write_report(made, digits)
    return made


def test_the_policy_starts_from_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    parts = dict(part.strip().split(" ", 1) for part in policy.replace("&#39;", "'").split(";"))
    assert parts.pop("default-src") == parts.pop("base-uri") == parts.pop("form-action") == "'none'"
    assert set(parts) == {"script-src", "style-src", "img-src"}
    assert "unsafe" not in parts["script-src"]
    assert all(re.fullmatch(r"'sha256-[A-Za-z0-9+/=]{44}'", source) for source in parts["script-src"].split())
    assert text.index("Content-Security-Policy") < text.index("<title>")  # before anything from outside


@pytest.mark.parametrize("directive", ATTEMPTS)
def test_what_the_page_does_not_need_is_forbidden(driver: Any, path: Path, directive: str) -> None:  # noqa: F811
    page = Page(driver, path)
    assert page.complaints() == []
    driver.execute_script(ATTEMPTS[directive])
    page.until("document.readyState === 'complete'")
    driver.execute_async_script("setTimeout(arguments[0], 100)")
    assert page("typeof window.owned") == "undefined"
    said = " ".join(page.complaints())
    assert "Content Security Policy" in said or directive == "worker-src", said
    assert reached(driver) == []
