"""The server's metrics in both formats, read by the parsers of Prometheus.

    python python_metrics.py CONNECTION

CONNECTION is a connection string of event store clients: kurrentdb://HOST:PORT?tls=false. Each case
prints a line; the last line counts passed, failed and skipped cases.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as text_format

# An isolated interpreter does not look into the folder of the program.
sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from case_list import CaseList, expect

case = CaseList("Prometheus")
TEXT = "text/plain;version=0.0.4"
OPEN = "application/openmetrics-text;version=1.0.0"


def page(address, accept):
    """Returns the media type and the text of the metrics."""
    with urlopen(Request(f"http://{address}/metrics", headers={"accept": accept})) as answer:
        return answer.headers["content-type"].partition(";")[0], answer.read().decode()


def described(families):
    """Returns the names of the families. Each has a help text and a type, and no other its name."""
    names = []
    for family in families:
        assert family.documentation and family.type != "unknown", family
        names.append(family.name)
    expect(len(set(names)), len(names))
    return set(names)


@case
def each_format_is_that_of_its_media_type(address):
    kind, text = page(address, TEXT)
    expect(kind, "text/plain")
    assert not text.endswith("# EOF\n")
    kind, text = page(address, OPEN)
    expect(kind, "application/openmetrics-text")
    assert text.endswith("# EOF\n")


@case
def both_formats_have_the_same_described_families(address):
    names = described(open_metrics(page(address, OPEN)[1]))
    assert "umbel_events_appended" in names, names
    expect(described(text_format(page(address, TEXT)[1])), names)


# It reads the text format only.
def promtool_finds_nothing(address):
    given = {"input": page(address, TEXT)[1], "capture_output": True, "text": True}
    checked = subprocess.run(["promtool", "check", "metrics"], **given)
    expect((checked.returncode, checked.stdout + checked.stderr), (0, ""))


if __name__ == "__main__":
    if shutil.which("promtool"):
        case(promtool_finds_nothing)
    else:
        print("SKIPPED: promtool check metrics: promtool is not installed (Debian: prometheus)")
    sys.exit(case.run(sys.argv[1].split("://")[1].split("?")[0]))
